//===- ShardBatch.cpp - Batches that no loader makes are split ------------===//
//
// Each process makes the whole batch, with equal random numbers, and goes on with
// its part.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyShardBatch(RuleContext &Context) {
  for (const BatchVariablesFact &Shard : Context.Program.Shards)
    Context.insertVariables(Shard, "shard",
                            "the batch is complete here; each process goes on "
                            "with its part of the rows");
  for (const BatchPartsFact &Fact : Context.Program.Parts) {
    std::string Variables, Names;
    std::vector<std::string> Parts;
    for (const std::string &Variable : Fact.Variables) {
      Parts.push_back(Context.freeName(
          Fact.In, {Variable + "_part", Variable + "_of_this_process"}));
      Variables += (Variables.empty() ? "" : ", ") + Variable;
      Names += (Names.empty() ? "" : ", ") + Parts.back();
    }
    const bool One = Parts.size() == 1;
    Context.insertLine(Fact.At, One ? "shard-part-one" : "shard-part-several",
                       {{"parts", Names},
                        {"variables", Variables},
                        {"accelerator", Context.accelerator(Fact.In)}},
                       "the batch is complete here; each process goes on with "
                       "its part of the rows");
    for (const auto &[Variable, Range] : Fact.Uses)
      Context.replace(Range, "shard-part-use", {{"part", Parts[Variable]}},
                      "this step works on this process's part of '" +
                          Fact.Variables[Variable] + "'");
  }
  for (const Spelled &Batch : Context.Program.InlineShards)
    Context.wrap(Batch.Range, nullptr, "shard-inline",
                 {{"accelerator", Context.accelerator(Batch.In)}},
                 "each process goes on with its part of the rows of this "
                 "batch");
}
