//===- Optimizer.cpp - Optimizers step together ---------------------------===//
//
// The declared type derives from what it replaces, so that references, pointers
// and torch::save see what they saw before.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyOptimizer(RuleContext &Context) {
  for (const OptimizerFact &Optimizer : Context.Program.Optimizers)
    for (const TextRange &Type : Optimizer.TypeNames)
      Context.wrap(Type, nullptr, "optimizer", {},
                   "the optimizer steps on gradients that are averaged over "
                   "the processes; it still is a torch::optim::Optimizer");
}
