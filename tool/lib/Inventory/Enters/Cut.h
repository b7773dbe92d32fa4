//===- Cut.h - Which tensors may be distributed -----------------*- C++ -*-===//
//
// Batches of loaders, what is shared out by hand, and what is calculated from
// them: followed through variables, fields and functions without regard to the
// order of statements. "No" can be relied on where all of the program is seen;
// "yes" costs speed at most, so that it need not be certain.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_CUT_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_CUT_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

class Cut {
public:
  enum KindTy {
    OfBatches,
    /// What a model gives is distributed only where it is given something that is,
    /// and a gradient where that is which it belongs to. A model that keeps part of a
    /// batch is not followed, so "no" cannot be relied on.
    ByArguments,
    /// Where parameters are in parts: also these, and all that models give.
    OfParameters
  };
  explicit Cut(const ProgramIndex &Index, KindTy Kind = OfBatches);

  /// Whether the value of an expression may have distributed tensors in it.
  bool in(const clang::Expr *E) const;
  /// Whether somewhere in `S` such a value is used, for whatever.
  bool isReadIn(const clang::Stmt *S) const;

  /// Takes up expressions that are shared out where they stand.
  void add(const std::set<const clang::Expr *> &Batches);

private:
  friend class CutWalk;
  void follow();

  const ProgramIndex &Index;
  KindTy Kind;
  std::set<const clang::ValueDecl *> Values;
  /// Of these, what a model's `forward` takes, whoever calls it.
  std::set<const clang::ValueDecl *> Supposed;
  std::set<const clang::FunctionDecl *> Returning; ///< Canonical.
  std::set<const clang::Expr *> Shared;
  /// Variables that stay whole, of which these are made.
  std::set<const clang::ValueDecl *> SharedWhereRead;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_CUT_H
