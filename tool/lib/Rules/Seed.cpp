//===- Seed.cpp - A seed that differs becomes process 0's -----------------===//
//
// From then on the generators of all processes draw the same numbers.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applySeed(RuleContext &Context) {
  for (const Spelled &Seed : Context.Program.Seeds)
    Context.wrap(Seed.Range, nullptr, "broadcast",
                 {{"accelerator", Context.accelerator(Seed.In, Seed.Range)}},
                 "all processes use the number that process 0 has here");
  for (const EarlyEngineFact &Engine : Context.Program.EarlyEngines)
    Context.insertLine(
        Context.Program.Functions[Engine.Main].Top, "seed-early",
        {{"engine", Engine.Name},
         {"accelerator", Context.accelerator(Engine.Main)}},
        "the generator was seeded before main began, by each process for "
        "itself: from here on all draw what process 0's draws");
}
