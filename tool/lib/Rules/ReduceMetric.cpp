//===- ReduceMetric.cpp - Numbers are those of the whole batch ------------===//
//
// A mean or a sum over this process's samples becomes the one over all samples
// where the program reads it.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyReduceMetric(RuleContext &Context) {
  for (const MetricReadFact &Read : Context.Program.MetricReads) {
    if (Read.Value == Placement::Rows) {
      Context.wrap(Read.Object, nullptr, "gather-inline",
                   {{"accelerator", Context.accelerator(Read.In)}},
                   "what is read here needs the samples of all processes");
      continue;
    }
    const bool Sum = Read.Value == Placement::SumOfRows;
    Context.wrap(
        Read.Object, nullptr, Sum ? "reduce-sum" : "reduce-mean",
        {{"accelerator", Context.accelerator(Read.In)}},
        Sum ? "the sum is read over the samples of all processes"
            : "the mean is read over the samples of all processes");
  }
}
