//===- Reads.cpp - Tensors whose values the program wants -----------------===//

#include "Calls.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// The program wants the value of a tensor.
void Interpreter::metricRead(const Expr *Object, const Value &V,
                             const Expr *E) {
  if (V.replicated()) {
    if (inCallee() && Splits)
      Out->WholeReads.push_back({Object, V.P, Top, Stack.back()});
    return;
  }
  // Also those that cannot be reduced: a gather may help.
  Out->Reads.push_back({Object, V.P, Top, Stack.back()});
  if (const Value *Bad = firstUnknown(V))
    return refuse(Bad->Why);
  if (!V.reduced())
    return refuse(
        "ACL0126", E->getExprLoc(),
        "'" + spelled(E) +
            "' reads single samples of this process's part of the batch",
        "Gather the tensor with accelerator.gather_for_metrics(x) before.");
}
