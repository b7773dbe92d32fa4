//===- DataParallel.cpp - Calls of models share out their rows ------------===//
//
// What stands before the first argument of `net->forward(x)` is written anew;
// the arguments stay as they are.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDataParallel(RuleContext &Context) {
  for (const ParallelCallFact &Call : Context.Program.Parallel)
    Context.replace(Call.Head, "data-parallel",
                    {{"accelerator", Context.accelerator(Call.In)},
                     {"model", Call.Model}},
                    "each process calls the model on its part of these rows, "
                    "and has the output for all of them");
}
