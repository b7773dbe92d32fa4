//===- Save.cpp - One process writes --------------------------------------===//
//
// Where the program reads a file again, the others wait until it is written.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applySave(RuleContext &Context) {
  for (const SaveFact &Save : Context.Program.Saves) {
    Context.replace(Save.Callee, "save",
                    {{"accelerator", Context.accelerator(Save.In, Save.Callee)}},
                    Save.ToStream ? "tensors that are in parts are put together"
                                  : "the main process writes the file");
    const char *Why = "the program reads files again: nobody goes on before this "
                      "one is written";
    if (Save.Braces) {
      Context.openBraces(*Save.Braces, Why);
      Context.insertLine(*Save.Braces->Close, "save-wait",
                         {{"accelerator", Context.accelerator(
                                              Save.In, Save.Braces->Close->At)}},
                         Why, /*Priority=*/100);
    } else if (Save.ReadLater) {
      Context.insertLine(Save.After, "save-wait",
                         {{"accelerator",
                           Context.accelerator(Save.In, Save.After.At)}},
                         Why);
    }
  }
  for (const ArchiveFact &Archive : Context.Program.Archives)
    Context.wrap(Archive.Object, &Archive.Between, "save-archive",
                 {{"accelerator", Context.accelerator(Archive.In, Archive.Object)},
                  {"star", Archive.IsPointer ? "*" : ""}},
                 "the main process writes the file, with tensors that are in "
                 "parts put together");
}
