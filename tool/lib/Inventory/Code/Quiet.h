//===- Quiet.h - Code that the other processes need not run -----*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_QUIET_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_QUIET_H

#include "ProgramIndex.h"

namespace accel::migrate {

/// std::mt19937 and the like; std::random_device; std::seed_seq.
bool isEngine(const clang::CXXRecordDecl *D);
bool isRandomDevice(const clang::CXXRecordDecl *D);
bool isSeedSequence(const clang::CXXRecordDecl *D);
/// Draws from a generator of the host: `rand()`, `distribution(engine)`,
/// `engine()`, `std::shuffle`.
bool drawsOnHost(const clang::CallExpr *E);
/// The random device that such a call draws from, as its argument; or null.
const clang::Expr *drawnFromDevice(const clang::CallExpr *E);
/// Seeds a generator, of the host or LibTorch's: the call's first argument is
/// the seed.
bool seeds(const clang::FunctionDecl *F);

/// Whether code has nothing to do with tensors, models, data and random
/// numbers, through all that it calls: it may run on one process and not on
/// another. It may print, and it may change variables.
class Quiet {
public:
  explicit Quiet(const ProgramIndex &Index) : Index(Index) {}

  bool is(const clang::Stmt *S) const;

private:
  bool isOfTraining(const clang::Stmt *S) const;
  bool function(const clang::FunctionDecl *F) const;

  const ProgramIndex &Index;
  mutable std::map<const clang::FunctionDecl *, bool> Known;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_QUIET_H
