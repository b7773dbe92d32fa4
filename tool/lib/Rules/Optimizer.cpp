//===- Optimizer.cpp - Optimizers step together ---------------------------===//
//
// The declared type derives from what it replaces, so that references, pointers
// and torch::save see what they saw before.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include <set>

using namespace accel::migrate;

void accel::migrate::applyOptimizer(RuleContext &Context) {
  // A member's type stands once, however many constructors make it.
  std::set<std::pair<std::string, unsigned>> Seen;
  for (const OptimizerFact &Optimizer : Context.Program.Optimizers)
    for (const TextRange &Type : Optimizer.TypeNames)
      if (Seen.insert({Type.File, Type.Offset}).second)
        Context.wrap(Type, nullptr, "optimizer", {},
                   "the optimizer steps on gradients of all processes; it "
                   "still is a torch::optim::Optimizer");
  for (const OptimizerTypeFact &Type : Context.Program.OptimizerTypes)
    Context.replace(Type.Range, "optimizer-type", {{"class", Type.Class}},
                    "what is written for LibTorch's optimizer takes the one "
                    "that derives from it");
}
