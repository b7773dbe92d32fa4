//===- Value.cpp - What the analysis knows of a value ---------------------===//

#include "Value.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace accel::migrate;

void accel::migrate::addOrigins(Value &To, const Value &From) {
  for (const clang::ValueDecl *Root : From.Roots)
    if (!llvm::is_contained(To.Roots, Root))
      To.Roots.push_back(Root);
  for (const clang::Expr *Size : From.Sizes)
    if (!llvm::is_contained(To.Sizes, Size))
      To.Sizes.push_back(Size);
  To.FromModel |= From.FromModel;
  To.Copy |= From.Copy;
  To.LastBatch |= From.LastBatch;
  To.Assumed |= From.Assumed;
  if (!To.Gathered)
    To.Gathered = From.Gathered;
}

Value accel::migrate::join(const Value &A, const Value &B,
                           const Reason *Differ) {
  if (A.unknown())
    return A;
  if (B.unknown())
    return B;
  if (A.P != B.P || A.Dim != B.Dim || A.TakeTurns != B.TakeTurns) {
    // A number that differs between processes in one case.
    auto Number = [](const Value &V) {
      return V.is(Placement::PerProcess) ||
             (V.replicated() && !V.MayHoldBatch && V.Elements.empty());
    };
    if (A.P != B.P && Number(A) && Number(B))
      return Value::make(Placement::PerProcess);
    return Value::unknownFor(Differ);
  }
  Value V = A;
  addOrigins(V, B);
  V.MayHoldBatch |= B.MayHoldBatch;
  V.MaybeFolded |= B.MaybeFolded;
  V.Scaled |= B.Scaled;
  V.IsParameter &= B.IsParameter;
  V.OneInFront &= B.OneInFront;
  if (A.Shape != B.Shape)
    V.Shape = nullptr;
  if (A.Variable != B.Variable)
    V.Variable = nullptr;
  V.Evaluates &= B.Evaluates;
  V.MinRank = A.Rank == Value::NoTensors   ? B.MinRank
              : B.Rank == Value::NoTensors ? A.MinRank
                                           : std::min(A.MinRank, B.MinRank);
  if (A.Rank != B.Rank)
    V.Rank = A.Rank == Value::NoTensors   ? B.Rank
             : B.Rank == Value::NoTensors ? A.Rank
                                          : -1;
  if (A.Constant != B.Constant)
    V.Constant.reset();
  if (A.Object != B.Object)
    V.Object = nullptr;
  if (A.Elements.size() == B.Elements.size()) {
    for (size_t I = 0; I < A.Elements.size(); ++I)
      V.Elements[I] = join(A.Elements[I], B.Elements[I], Differ);
  } else if (!V.replicated()) {
    return Value::unknownFor(Differ);
  } else {
    V.Elements.clear();
  }
  return V;
}
