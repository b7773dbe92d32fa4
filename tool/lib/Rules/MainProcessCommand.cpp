//===- MainProcessCommand.cpp - One process talks to a command ------------===//
//
// The others talk to nobody, so that all run the same code and a read of a
// tensor between two lines stays where it is.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyMainProcessCommand(RuleContext &Context) {
  for (const Spelled &Command : Context.Program.Commands)
    Context.wrap(Command.Range, nullptr, "main-process-command",
                 {{"accelerator", Context.accelerator(Command.In, Command.Range)}},
                 "the main process talks to the command; what it is told is "
                 "computed on all");
}
