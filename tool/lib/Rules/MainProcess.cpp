//===- MainProcess.cpp - Windows, images, plots, commands -----------------===//
//
// Statements that do nothing for the training.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyMainProcess(RuleContext &Context) {
  for (const FileWaitFact &Wait : Context.Program.FileWaits) {
    Context.insertLine(Wait.At, "save-wait",
                       {{"accelerator", Context.accelerator(Wait.In, Wait.At.At)}},
                       Wait.Why);
    if (Wait.Close)
      Context.closeBraces(*Wait.Close, "the branch has a second statement");
  }
  for (const GuardFact &Guard : Context.Program.Guards) {
    if (Guard.Before)
      Context.insertLine(*Guard.Before, "save-wait",
                         {{"accelerator", Context.accelerator(Guard.In, Guard.Before->At)}},
                         "the file goes when all have read it",
                         /*Priority=*/-10);
    if (Guard.Close && Guard.WaitsBehind)
      Context.insertLine(*Guard.Close, "save-wait",
                         {{"accelerator", Context.accelerator(Guard.In, Guard.Close->At)}},
                         "the branch has a second statement", /*Priority=*/100);
    else if (Guard.Close)
      Context.closeBraces(*Guard.Close, "the branch has a second statement");
    if (Guard.After)
      Context.insertLine(*Guard.After, "save-wait",
                         {{"accelerator", Context.accelerator(Guard.In, Guard.After->At)}},
                         "the program reads files behind it: nobody goes on "
                         "before this is done");
    if (Guard.Callee && Guard.Open) {
      Context.wrap(*Guard.Callee, &*Guard.Open, "main-process-values",
                   {{"accelerator", Context.accelerator(Guard.In, *Guard.Callee)},
                    {"values", Context.freeName(Guard.In, {"values", "given"})}},
                   "once is enough, with what all processes have calculated");
      for (const TextRange &Tensor : Guard.Tensors)
        Context.wrap(Tensor, nullptr, "full",
                     {{"accelerator", Context.accelerator(Guard.In, Tensor)},
                      {"full", "full"},
                      {"star", ""}},
                     "the tensor that one device has");
      continue;
    }
    Context.replace(Guard.Range.part(0, 0), "main-process",
                    {{"accelerator", Context.accelerator(Guard.In, Guard.Range)}},
                    "once is enough");
  }
}
