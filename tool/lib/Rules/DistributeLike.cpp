//===- DistributeLike.cpp - Buffers with a batch's sizes ------------------===//
//
// What is written into the buffer a part at a time has a process's rows only.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDistributeLike(RuleContext &Context) {
  for (const BufferFact &Buffer : Context.Program.Buffers) {
    const std::string Dim =
        Buffer.Dim ? std::to_string(*Buffer.Dim) : std::string();
    Context.wrap(Buffer.Range, nullptr,
                 Buffer.Dim ? "distribute-like-dim" : "distribute-like",
                 {{"like", Buffer.Like}, {"dim", Dim}},
                 "the buffer is filled with what processes have of '" +
                     Buffer.Like + "': each has the same rows of it");
  }
}
