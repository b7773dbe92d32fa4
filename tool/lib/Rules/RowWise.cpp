//===- RowWise.cpp - Models of TorchScript on rows of the batch -----------===//
//
// Whether such a model keeps the samples of a batch apart cannot be seen before
// it is loaded: the runtime looks.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyRowWise(RuleContext &Context) {
  for (const Spelled &Model : Context.Program.Scripted)
    Context.wrap(Model.Range, nullptr, "row-wise",
                 {{"accelerator", Context.accelerator(Model.In)}},
                 "that the model keeps the samples of a batch apart is looked "
                 "at when it is first called");
}
