//===- Value.h - What the analysis knows of a value -------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_VALUE_H
#define ACCEL_MIGRATE_LIB_INVENTORY_VALUE_H

#include "accel/migrate/Placement.h"

#include "clang/AST/Decl.h"
#include "clang/AST/Expr.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

/// Why a value is unknown: the finding that is given when it matters.
struct Reason {
  std::string Id;
  clang::SourceLocation Loc;
  std::string Message;
  std::string Remedy;
};

/// An abstract value: a tensor, a number, a shape, a tuple, an object.
struct Value {
  Placement P = Placement::Replicated;

  /// Replicated tensors: dimension 0 may count the samples of the whole batch,
  /// so that mixing it with rows is not known to be right.
  bool MayHoldBatch = false;
  /// Rows: dimension 0 may be a multiple of the part's samples, as in
  /// `view({-1, n})`. The rows of a sample still stand together.
  bool MaybeFolded = false;
  /// Local sizes: not the size itself but calculated from it.
  bool Scaled = false;
  /// Depends on parameters that are trained.
  bool FromModel = false;
  /// A parameter itself, or a list of them, as the model or the optimizer gives
  /// it: its gradient is averaged.
  bool IsParameter = false;
  /// Tensors: number of dimensions, -1 when not known, and a lower bound.
  int Rank = -1;
  unsigned MinRank = 0;

  /// Integer constants.
  std::optional<int64_t> Constant;
  /// Objects: the variable that holds it (models, through `this` in their
  /// methods).
  const clang::VarDecl *Object = nullptr;
  /// Whole batches (loops without a loader): the variables that were read.
  llvm::SmallVector<const clang::VarDecl *, 2> Roots;
  /// Local sizes: the `size(0)` expressions that this was made from.
  llvm::SmallVector<const clang::Expr *, 1> Sizes;
  /// Tuples, lists, shapes: one by one, where known.
  std::vector<Value> Elements;
  /// Unknown: the reason.
  const Reason *Why = nullptr;

  bool is(Placement Other) const { return P == Other; }
  bool replicated() const { return P == Placement::Replicated; }
  bool rows() const { return P == Placement::Rows; }
  bool unknown() const { return P == Placement::Unknown; }
  bool reduced() const {
    return P == Placement::MeanOfRows || P == Placement::SumOfRows;
  }

  /// The element `I` of a tuple; the value itself where all are alike.
  Value element(unsigned I) const {
    if (I < Elements.size())
      return Elements[I];
    Value V = *this;
    V.Elements.clear();
    return V;
  }

  static Value make(Placement P) {
    Value V;
    V.P = P;
    return V;
  }
  static Value unknownFor(const Reason *Why) {
    Value V = make(Placement::Unknown);
    V.Why = Why;
    return V;
  }
  static Value rowsOf(unsigned MinRank, int Rank = -1) {
    Value V = make(Placement::Rows);
    V.MinRank = MinRank;
    V.Rank = Rank;
    return V;
  }

  bool operator==(const Value &O) const {
    return P == O.P && MayHoldBatch == O.MayHoldBatch &&
           MaybeFolded == O.MaybeFolded && Scaled == O.Scaled &&
           FromModel == O.FromModel && IsParameter == O.IsParameter && Rank == O.Rank && MinRank == O.MinRank &&
           Constant == O.Constant && Object == O.Object && Roots == O.Roots &&
           Sizes == O.Sizes && Elements == O.Elements;
  }
};

/// What is known of a value that is either `A` or `B`. `Differ` is the reason
/// given where they do not agree.
Value join(const Value &A, const Value &B, const Reason *Differ);

/// Adds what `From` was read from to `To`.
void addOrigins(Value &To, const Value &From);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_VALUE_H
