//===- Save.cpp - One process writes --------------------------------------===//
//
// Where the program reads a file again, the others wait until it is written.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applySave(RuleContext &Context) {
  for (const SaveFact &Save : Context.Program.Saves) {
    const std::string Accelerator = Context.accelerator(Save.In);
    Context.replace(Save.Callee, Save.Close ? "save-open" : "save",
                    {{"accelerator", Accelerator}},
                    Save.ToStream ? "tensors that are in parts are put together"
                                  : "the main process writes the file");
    if (Save.Close)
      Context.insert(*Save.Close, "save-wait-close",
                     {{"accelerator", Accelerator}},
                     "the program reads files again: nobody goes on before "
                     "this one is written");
    else if (Save.ReadLater)
      Context.insertLine(Save.After, "save-wait",
                         {{"accelerator", Accelerator}},
                         "the program reads files again: nobody goes on before "
                         "this one is written");
  }
  for (const ArchiveFact &Archive : Context.Program.Archives)
    Context.wrap(Archive.Object, &Archive.Between, "save-archive",
                 {{"accelerator", Context.accelerator(Archive.In)},
                  {"star", Archive.IsPointer ? "*" : ""}},
                 "the main process writes the file, with tensors that are in "
                 "parts put together");
}
