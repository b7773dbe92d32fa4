//===- Accelerator.cpp - The object that everything else goes through -----===//
//
// Runs last: declares it in the functions in which other rules asked for it, and
// in main always, since that is where the process joins the others.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

/// In main.
static void create(RuleContext &Context, const FunctionFact &Main,
                   const std::string &Name) {
  const char *Why =
      Context.Options.MatchSingleDevice
          ? "the process joins the others here; results are those of one device"
          : "the process joins the others here; batches of loaders are N times "
            "as large, and results are those of one device with such batches";
  const std::string Options = Context.acceleratorOptions();
  if (Main.Try)
    Context.wrap(*Main.Try, nullptr, "accelerator-create-around",
                 {{"accelerator", Name},
                  {"options", Options},
                  {"indent", Main.Top.Before}},
                 Why);
  else
    Context.insertLine(Main.Top, "accelerator-create",
                       {{"accelerator", Name}, {"options", Options}}, Why,
                       /*Priority=*/-100);
}

void accel::migrate::applyAccelerator(RuleContext &Context) {
  for (FunctionId Id = 0; Id < Context.Program.Functions.size(); ++Id)
    if (Context.Program.Functions[Id].IsMain)
      Context.accelerator(Id);
  for (const auto &[Id, Name] : Context.acceleratorNames()) {
    const FunctionFact &Function = Context.Program.Functions[Id];
    if (Function.IsMain)
      create(Context, Function, Name);
    else if (Context.Program.HasMain)
      Context.insertLine(Function.Top, "accelerator-reference",
                         {{"accelerator", Name}},
                         "the accelerator that main created, under the name "
                         "that the lines below use",
                         /*Priority=*/-100);
    else
      Context.insertLine(
          Function.Top, "accelerator-first",
          {{"accelerator", Name}, {"options", Context.acceleratorOptions()}},
          "the program's accelerator; it is made here where main has made none",
          /*Priority=*/-100);
  }
}
