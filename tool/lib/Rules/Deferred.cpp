//===- Deferred.cpp - A task that is waited for at once runs there --------===//
//
// Processes meet in the thread that has made the accelerator.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDeferred(RuleContext &Context) {
  const char *Why = "the task trains, and runs in the thread that waits for it: "
                    "all processes meet in the same order";
  for (const Spelled &Policy : Context.Program.LaunchPolicies)
    Context.replace(Policy.Range, "deferred", {}, Why);
  for (const Spelled &Task : Context.Program.LaunchedTasks)
    Context.wrap(Task.Range, nullptr, "deferred-task", {}, Why);
}
