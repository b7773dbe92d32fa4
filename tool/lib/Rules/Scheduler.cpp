//===- Scheduler.cpp - Schedules count optimizer steps --------------------===//
//
// A scheduler that is stepped for a batch must count what its optimizer did.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyScheduler(RuleContext &Context) {
  for (const SchedulerFact &Scheduler : Context.Program.Schedulers)
    for (const TextRange &Type : Scheduler.TypeNames)
      Context.wrap(Type, nullptr, "scheduler", {},
                   "the schedule advances with its optimizer's steps; it still "
                   "is a torch::optim::LRScheduler");
}
