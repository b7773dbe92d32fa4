//===- Broadcast.cpp - What differs becomes process 0's -------------------===//
//
// Decisions on clocks, signals, files and keys. Seeds have a rule of their own.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyBroadcast(RuleContext &Context) {
  for (const BroadcastFact &Fact : Context.Program.Broadcasts) {
    llvm::StringRef Template = "broadcast";
    const char *Elsewhere = ""; ///< What the others have before they are told.
    const char *Why = "all processes go the way that process 0 goes here";
    switch (Fact.Kind) {
    case BroadcastFact::Decision:
      break;
    case BroadcastFact::Truth:
      Template = "broadcast-truth";
      break;
    case BroadcastFact::Number:
      Why = "all processes calculate with the number that process 0 has here";
      break;
    case BroadcastFact::Device:
      Template = "broadcast-device";
      Why = "all processes draw alike; process 0's random device is the seed";
      break;
    case BroadcastFact::Name:
    case BroadcastFact::CName:
    case BroadcastFact::Path:
      if (Fact.Kind != BroadcastFact::Name)
        Template = Fact.Kind == BroadcastFact::CName ? "broadcast-string"
                                                     : "broadcast-path";
      Why = "all processes use the name that process 0 has here";
      break;
    case BroadcastFact::Key:
      Template = "broadcast-answer";
      Elsewhere = "-1";
      Why = "the main process has the window; all are told what it returned";
      break;
    case BroadcastFact::Status:
    case BroadcastFact::Success:
      Template = "broadcast-answer";
      Elsewhere = Fact.Kind == BroadcastFact::Status ? "0" : "false";
      Why = "the main process does it; all are told what it returned";
      break;
    }
    Context.wrap(Fact.Range, nullptr, Template,
                 {{"accelerator", Context.accelerator(Fact.In, Fact.Range)},
                  {"elsewhere", Elsewhere}},
                 Why);
  }
}
