//===- Replicated.cpp - Models called on what is no part of the batch -----===//
//
// In a batch loop the runtime takes the tensors that batch norm, dropout and
// random functions see for this process's rows. Sample images that a generator
// draws from noise of their own are no rows of the batch.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyReplicated(RuleContext &Context) {
  for (const Spelled &Call : Context.Program.Replicated)
    Context.wrap(Call.Range, nullptr, "replicated",
                 {{"accelerator", Context.accelerator(Call.In)}},
                 "these tensors are no part of the batch: every process "
                 "calculates all of them, as one device does");
}
