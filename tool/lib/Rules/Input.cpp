//===- Input.cpp - The standard input -------------------------------------===//
//
// Process 0 has it; all read the same.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

static llvm::StringRef templateOf(InputFact::KindTy Kind) {
  switch (Kind) {
  case InputFact::Cin:
    return "input-cin";
  case InputFact::Scanf:
    return "input-scanf";
  case InputFact::Getchar:
    return "input-getchar";
  case InputFact::CStdin:
    return "input-stdin";
  }
  return "input-cin";
}

void accel::migrate::applyInput(RuleContext &Context) {
  for (const InputFact &Input : Context.Program.Inputs)
    Context.replace(Input.Range, templateOf(Input.Kind),
                    {{"accelerator", Context.accelerator(Input.In, Input.Range)}},
                    "process 0 reads, and all have what it has read");
}
