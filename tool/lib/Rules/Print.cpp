//===- Print.cpp - One process prints -------------------------------------===//
//
// The arguments are still evaluated on every process.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

static llvm::StringRef templateOf(PrintFact::KindTy Kind) {
  switch (Kind) {
  case PrintFact::Cout:
    return "print-cout";
  case PrintFact::Cerr:
    return "print-cerr";
  case PrintFact::Printf:
    return "print-printf";
  case PrintFact::Puts:
    return "print-puts";
  case PrintFact::Literal:
    return "print-text";
  case PrintFact::Putchar:
    return "print-putchar";
  case PrintFact::FprintfStdout:
    return "print-fprintf";
  case PrintFact::Vprintf:
    return "print-vprintf";
  case PrintFact::FmtPrint:
    return "print-fmt";
  case PrintFact::CStdout:
    return "print-stdout";
  case PrintFact::CStderr:
    return "print-stderr";
  case PrintFact::Descriptor:
    return "print-descriptor";
  case PrintFact::TensorStream:
    return "print-tensor-stream";
  case PrintFact::TensorWidth:
    return "print-tensor-width";
  case PrintFact::EarlyCout:
    return "print-early-cout";
  case PrintFact::EarlyCerr:
    return "print-early-cerr";
  case PrintFact::EarlyCStdout:
    return "print-early-stdout";
  }
  return "print-cout";
}

/// Before main there is no accelerator.
static bool isEarly(PrintFact::KindTy Kind) {
  return Kind == PrintFact::EarlyCout || Kind == PrintFact::EarlyCerr ||
         Kind == PrintFact::EarlyCStdout;
}

void accel::migrate::applyPrint(RuleContext &Context) {
  for (const PrintFact &Print : Context.Program.Prints)
    Context.replace(Print.Range, templateOf(Print.Kind),
                    {{"accelerator",
                      isEarly(Print.Kind) ? ""
                      : Print.InMacro     ? Context.inlineAccelerator()
                                          : Context.accelerator(Print.In, Print.Range)},
                     {"text", Print.Format}},
                    "the main process prints; what is printed is computed on "
                    "all");
}
