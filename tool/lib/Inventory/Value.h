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

// The report has a Reason of its own, for changes.
namespace analysis {
/// Why a value is unknown: the finding that is given when it matters.
struct Reason {
  std::string Id;
  clang::SourceLocation Loc;
  std::string Message;
  std::string Remedy;
};
} // namespace analysis
using analysis::Reason;

/// An abstract value: a tensor, a number, a shape, a tuple, an object.
struct Value {
  Placement P = Placement::Replicated;

  /// Replicated tensors: dimension 0 may count the samples of the whole batch,
  /// so that mixing it with rows is not known to be right.
  bool MayHoldBatch = false;
  /// Rows: dimension 0 may be a multiple of the part's samples, as in
  /// `view({-1, n})`. The rows of a sample still stand together. Local sizes:
  /// taken from such rows. Replicated tensors: of the whole batch's samples.
  bool MaybeFolded = false;
  /// Rows: the dimension of the samples.
  unsigned Dim = 0;
  /// Rows: dimensions before the samples' were merged with it, so that the rows
  /// of the samples take turns. Means and sums are right; they cannot be
  /// gathered.
  bool TakeTurns = false;
  /// Tensors whose first dimension has the size 1: states of one layer.
  bool OneInFront = false;
  /// Replicated tensors: the list that spells their shape, and the variable of
  /// the function itself that such a tensor was read from.
  const clang::Expr *Shape = nullptr;
  const clang::ValueDecl *Variable = nullptr;
  /// Local sizes: not the size itself but calculated from it.
  bool Scaled = false;
  /// Depends on parameters that are trained.
  bool FromModel = false;
  /// A parameter itself, or a list of them, as the model or the optimizer gives
  /// it: its gradient is averaged.
  bool IsParameter = false;
  /// Calculated from rows that were gathered, without their gradient: why it
  /// may not become a part of a loss.
  const Reason *Gathered = nullptr;
  /// Stands in a gathered copy: what changes it does not change the original.
  bool Copy = false;
  /// Rows and what was reduced from them: of the last batch of a loop that has
  /// ended. What is read of it the runtime is told so.
  bool LastBatch = false;
  /// Rows: made with a shape that a called function spells, whose size was taken
  /// for the batch's. They may be no part of it.
  bool Assumed = false;
  /// Models: in evaluation mode, on every way to here.
  bool Evaluates = false;
  /// Tensors: number of dimensions, -1 when not known, and a lower bound.
  int Rank = -1;
  /// The rank of an empty list, which becomes that of what is put into it, and
  /// of a tensor that is not defined yet.
  static constexpr int NoTensors = -2;
  unsigned MinRank = 0;

  /// Integer constants.
  std::optional<int64_t> Constant;
  /// Objects: the variable or member that holds it (models, through `this` in
  /// their methods). A method that is interpreted stands for its `*this`.
  const clang::ValueDecl *Object = nullptr;
  /// Whole batches (loops without a loader): the variables that were read.
  llvm::SmallVector<const clang::ValueDecl *, 2> Roots;
  /// Local sizes: the `size(0)` expressions that this was made from.
  llvm::SmallVector<const clang::Expr *, 1> Sizes;
  /// Tuples, lists, shapes: one by one, where known.
  std::vector<Value> Elements;
  /// Unknown: the reason.
  const Reason *Why = nullptr;

  /// A list without elements, a tensor that is not defined.
  bool empty() const {
    return P == Placement::Replicated && Rank == NoTensors && !MayHoldBatch;
  }
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
  /// Rows whose dimension 0 counts the samples, one after the other.
  bool plainRows() const { return rows() && Dim == 0 && !TakeTurns; }

  /// The rows of a tensor that was whole.
  static Value partOf(const Value &Whole) {
    return Whole.Rank > 0 ? rowsOf(Whole.Rank, Whole.Rank)
                          : rowsOf(Whole.MinRank > 1 ? Whole.MinRank : 1);
  }
  static Value rowsOf(unsigned MinRank, int Rank = -1) {
    Value V = make(Placement::Rows);
    V.MinRank = MinRank;
    V.Rank = Rank;
    return V;
  }

  bool operator==(const Value &O) const {
    return P == O.P && MayHoldBatch == O.MayHoldBatch &&
           MaybeFolded == O.MaybeFolded && Dim == O.Dim &&
           TakeTurns == O.TakeTurns && OneInFront == O.OneInFront &&
           Shape == O.Shape && Variable == O.Variable && Scaled == O.Scaled &&
           FromModel == O.FromModel && IsParameter == O.IsParameter && Gathered == O.Gathered &&
           Copy == O.Copy && LastBatch == O.LastBatch && Assumed == O.Assumed && Evaluates == O.Evaluates && Rank == O.Rank && MinRank == O.MinRank &&
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
