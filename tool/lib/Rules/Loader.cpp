//===- Loader.cpp - Loaders share the batches -----------------------------===//
//
// The loader keeps its static type.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyLoader(RuleContext &Context) {
  for (const Spelled &Loader : Context.Program.Loaders)
    Context.replace(Loader.Range, "loader", {},
                    "each process loads its part of every batch; the loader's "
                    "type stays what it is");
}
