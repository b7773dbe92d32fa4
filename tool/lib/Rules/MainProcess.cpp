//===- MainProcess.cpp - Windows, images, plots, commands -----------------===//
//
// Statements that do nothing for the training.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyMainProcess(RuleContext &Context) {
  for (const GuardFact &Guard : Context.Program.Guards)
    Context.replace({Guard.Range.File, Guard.Range.Offset, 0}, "main-process",
                    {{"accelerator", Context.accelerator(Guard.In)}},
                    "once is enough");
}
