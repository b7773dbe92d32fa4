//===- Backward.cpp - backward() ------------------------------------------===//
//
// Gradients are brought together while they are computed.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyBackward(RuleContext &Context) {
  for (const BackwardFact &Backward : Context.Program.Backwards) {
    const std::string Accelerator =
        Context.accelerator(Backward.In, Backward.Tail);
    const char *Why = "gradients are those of the whole batch when this returns";
    if (Backward.Open.Length)
      Context.remove(Backward.Open, Why);
    for (const TextRange &Comma : Backward.Between)
      Context.replace(Comma, "backward-sum", {}, "the losses have one gradient, that of their sum");
    const std::string Star = Backward.IsPointer ? "*" : "";
    if (Backward.Gradient.Length) {
      Context.wrap(Backward.Object, &Backward.BeforeGradient,
                   "backward-gradient",
                   {{"accelerator", Accelerator}, {"star", Star}}, Why);
      const bool Retains = !Backward.RetainGraph.empty();
      Context.replace(Backward.Tail,
                      Retains ? "backward-gradient-retain"
                              : "backward-gradient-close",
                      {{"retain", Backward.RetainGraph}}, Why);
    } else if (Backward.RetainGraph.empty())
      Context.wrap(Backward.Object, &Backward.Tail, "backward",
                   {{"accelerator", Accelerator}, {"star", Star}}, Why);
    else
      Context.wrap(Backward.Object, &Backward.Tail, "backward-retain",
                   {{"accelerator", Accelerator},
                    {"star", Star},
                    {"retain", Backward.RetainGraph}},
                   Why);
  }
}
