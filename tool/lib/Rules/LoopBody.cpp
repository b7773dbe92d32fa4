//===- LoopBody.cpp - The scope of a batch in loops that are left early ---===//
//
// What comes behind the loop is not about its last batch.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyLoopBody(RuleContext &Context) {
  for (const LeftLoopFact &Loop : Context.Program.LeftLoops)
    Context.insertLine(
        Loop.BodyTop, "loop-body",
        {{"body", Context.freeName(Loop.In, {"body", "loop_body",
                                             "body_of_loop"})},
         {"accelerator", Context.accelerator(Loop.In)}},
        "the loop can be left before its end: the batch ends with the body",
        /*Priority=*/-10);
}
