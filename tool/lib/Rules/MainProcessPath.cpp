//===- MainProcessPath.cpp - One process writes a file --------------------===//
//
// The others write to nowhere, so that all run the same code and a read of a
// tensor between two writes stays where it is.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyMainProcessPath(RuleContext &Context) {
  for (const Spelled &Path : Context.Program.Paths)
    Context.wrap(Path.Range, nullptr, "main-process-path",
                 {{"accelerator", Context.accelerator(Path.In, Path.Range)}},
                 "the main process writes the file; what is written is "
                 "computed on all");
}
