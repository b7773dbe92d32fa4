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
  }
  return "print-cout";
}

void accel::migrate::applyPrint(RuleContext &Context) {
  for (const PrintFact &Print : Context.Program.Prints)
    Context.replace(Print.Range, templateOf(Print.Kind),
                    {{"accelerator",
                      Print.InMacro ? Context.inlineAccelerator()
                                    : Context.accelerator(Print.In)},
                     {"text", Print.Format}},
                    "the main process prints; what is printed is computed on "
                    "all");
}
