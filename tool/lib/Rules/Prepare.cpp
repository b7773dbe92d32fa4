//===- Prepare.cpp - Models and optimizers are made known -----------------===//
//
// One line for what is set up in one block before a training, when all of it
// exists.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace accel::migrate;

static void addName(std::vector<std::string> &Names, const std::string &Name) {
  if (std::find(Names.begin(), Names.end(), Name) == Names.end())
    Names.push_back(Name);
}

void accel::migrate::applyPrepare(RuleContext &Context) {
  struct Group {
    FunctionId In = 0;
    std::vector<std::string> Models, Optimizers;
    LinePoint Last;
  };
  // In each block, those before a training apart from those behind it.
  std::map<std::tuple<FunctionId, unsigned, unsigned>, Group> Groups;
  for (const OptimizerFact &Optimizer : Context.Program.Optimizers) {
    if (!Optimizer.isPrepared())
      continue;
    Group &G =
        Groups[{Optimizer.In, Optimizer.Block, Optimizer.Trainings}];
    G.In = Optimizer.In;
    for (const std::string &Model : Optimizer.Models)
      addName(G.Models, Model);
    if (!Optimizer.Object.empty())
      addName(G.Optimizers, Optimizer.Object);
    if (G.Last.At.File.empty() ||
        G.Last.At.Offset < Optimizer.SetUp.At.Offset)
      G.Last = Optimizer.SetUp;
  }
  for (const auto &[Key, G] : Groups) {
    std::string Objects;
    for (const auto *Names : {&G.Models, &G.Optimizers})
      for (const std::string &Name : *Names)
        Objects += (Objects.empty() ? "" : ", ") + Name;
    Context.insertLine(G.Last, "prepare",
                       {{"accelerator", Context.accelerator(G.In, G.Last.At)},
                        {"objects", Objects}},
                       "the model starts with the same parameters on all "
                       "processes, and its gradients are brought together from "
                       "here on");
  }
}
