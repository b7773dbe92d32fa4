//===- MainProcess.cpp - Windows, images, plots, commands -----------------===//
//
// Statements that do nothing for the training.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

/// Whether an argument is a number of the batch, for which all processes meet.
static bool meets(const TrainingProgram &Program, const TextRange &Range) {
  return llvm::any_of(Program.MetricReads, [&](const MetricReadFact &Read) {
    return Read.Object.File == Range.File &&
           Read.Object.Offset >= Range.Offset &&
           Read.Object.Offset < Range.Offset + Range.Length;
  });
}

void accel::migrate::applyMainProcess(RuleContext &Context) {
  for (const GuardFact &Guard : Context.Program.Guards) {
    if (Guard.Callee && Guard.Open && meets(Context.Program, Guard.Range)) {
      Context.wrap(*Guard.Callee, &*Guard.Open, "main-process-values",
                   {{"accelerator", Context.accelerator(Guard.In)},
                    {"values", Context.freeName(Guard.In, {"values", "given"})}},
                   "once is enough, with numbers of all processes");
      continue;
    }
    Context.replace({Guard.Range.File, Guard.Range.Offset, 0}, "main-process",
                    {{"accelerator", Context.accelerator(Guard.In)}},
                    "once is enough");
  }
}
