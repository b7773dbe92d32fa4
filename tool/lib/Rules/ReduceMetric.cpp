//===- ReduceMetric.cpp - Numbers are those of the whole batch ------------===//
//
// A mean or a sum over this process's samples becomes the one over all samples
// where the program reads it. Behind the loop it is that of the last batch.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyReduceMetric(RuleContext &Context) {
  for (const MetricReadFact &Read : Context.Program.MetricReads) {
    const std::string Accelerator =
        Context.accelerator(Read.In) + (Read.LastBatch ? ".last_batch()" : "");
    if (Read.Value == Placement::Rows) {
      Context.wrap(Read.Object, nullptr, "gather-inline",
                   {{"accelerator", Accelerator}},
                   "what is read here needs the samples of all processes");
      continue;
    }
    const bool Sum = Read.Value == Placement::SumOfRows;
    Context.wrap(
        Read.Object, nullptr, Sum ? "reduce-sum" : "reduce-mean",
        {{"accelerator", Accelerator}},
        Sum ? "the sum is read over the samples of all processes"
            : "the mean is read over the samples of all processes");
  }
}
