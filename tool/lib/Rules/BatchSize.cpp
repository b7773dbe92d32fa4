//===- BatchSize.cpp - Sizes that are numbers are those of the whole batch -===//
//
// Sizes that become shapes stay this process's.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyBatchSize(RuleContext &Context) {
  for (const BatchSizeFact &Size : Context.Program.BatchSizes)
    Context.wrap(Size.Object, &Size.Tail, "batch-size",
                 {{"accelerator", Context.accelerator(Size.In)}},
                 "this number counts the samples of all processes");
  for (const Spelled &Size : Context.Program.LocalSizes)
    Context.wrap(Size.Range, nullptr, "local-batch-size",
                 {{"accelerator", Context.accelerator(Size.In)}},
                 "this shape is that of this process's part of the batch");
}
