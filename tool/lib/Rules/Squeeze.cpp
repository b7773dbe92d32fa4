//===- Squeeze.cpp - The samples' dimension stays one ---------------------===//
//
// x.squeeze() takes away every dimension of size 1; with several processes the
// one of the samples may be of size 1 here and not on one device.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applySqueeze(RuleContext &Context) {
  for (const BatchSizeFact &Squeeze : Context.Program.Squeezes)
    Context.wrap(Squeeze.Object, &Squeeze.Tail, "squeeze",
                 {{"accelerator", Context.accelerator(Squeeze.In)}},
                 "the samples stay a dimension where this process's part is a "
                 "single one");
}
