//===- Distribute.cpp - Batches that no loader makes ----------------------===//
//
// Each is shared out where it is made; those that are declared side by side, behind
// the last one.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include "llvm/ADT/StringExtras.h"

using namespace accel::migrate;

void accel::migrate::applyDistribute(RuleContext &Context) {
  applyEdits(Context);
  for (const VariablesFact &Batches : Context.Program.Distributed)
    Context.insertLine(
        Batches.At, "distribute-several",
        {{"variables", llvm::join(Batches.Variables, ", ")},
         {"accelerator", Context.accelerator(Batches.In, Batches.At.At)}},
        "the batch is complete here; the processes share out its rows");
}
