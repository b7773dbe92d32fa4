//===- ReadablePath.cpp - A file that the program may have written --------===//
//
// One process writes it, all read it: the runtime knows whether this file is one
// of those, and lets all wait if it is.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyReadablePath(RuleContext &Context) {
  for (const Spelled &Path : Context.Program.ReadPaths)
    Context.wrap(Path.Range, nullptr, "readable-path",
                 {{"accelerator", Context.accelerator(Path.In, Path.Range)}},
                 "a file that the program may have written itself: all wait "
                 "until the main process has come here");
}
