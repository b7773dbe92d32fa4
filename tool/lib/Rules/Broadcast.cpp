//===- Broadcast.cpp - What differs becomes process 0's -------------------===//
//
// Seeds, and decisions on clocks, files and keys.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyBroadcast(RuleContext &Context) {
  for (const BroadcastFact &Fact : Context.Program.Broadcasts) {
    llvm::StringRef Template = "broadcast";
    const char *Why = "all processes use the number that process 0 has here";
    switch (Fact.Kind) {
    case BroadcastFact::Seed:
      break;
    case BroadcastFact::Decision:
      Why = "all processes go the way that process 0 goes here";
      break;
    case BroadcastFact::Truth:
      Template = "broadcast-truth";
      Why = "all processes go the way that process 0 goes here";
      break;
    case BroadcastFact::Key:
      Template = "broadcast-key";
      Why = "the main process has the window; all are told what it returned";
      break;
    }
    Context.wrap(Fact.Range, nullptr, Template,
                 {{"accelerator", Context.accelerator(Fact.In)}}, Why);
  }
}
