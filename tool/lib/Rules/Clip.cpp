//===- Clip.cpp - Clipping sees the whole batch's gradients ----------------===//
//
// Only the name changes: the arguments and the result are the same.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyClip(RuleContext &Context) {
  const char *Why = "clipping works on the gradients of the whole batch";
  for (const Spelled &Clip : Context.Program.NormClips)
    Context.replace(Clip.Range, "clip-grad-norm",
                    {{"accelerator", Context.accelerator(Clip.In, Clip.Range)}}, Why);
  for (const Spelled &Clip : Context.Program.ValueClips)
    Context.replace(Clip.Range, "clip-grad-value",
                    {{"accelerator", Context.accelerator(Clip.In, Clip.Range)}}, Why);
}
