//===- Differing.h - What can differ between processes ----------*- C++ -*-===//
//
// Clocks, random devices, process ids, a process's rank: values that processes
// running the same program on the same data do not share. They are followed
// through variables, fields and functions without regard to the order of
// statements, so that the answer "the same" can be relied on.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERING_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERING_H

#include "Code/ProgramIndex.h"
#include "Code/Quiet.h"

#include <optional>

namespace accel::migrate {

/// A call whose result differs between processes, whatever the data: clocks,
/// process ids, random devices.
bool isPerProcess(const clang::FunctionDecl *F);

/// `ftell(file)` of a file that the function also reads: all processes read the
/// same. In one that is written, only the main process gets on.
bool tellsOfInput(const clang::CallExpr *E, const clang::FunctionDecl *F);

/// A method of accel::Accelerator or accel::AcceleratorState.
bool isAcceleratorMethod(const clang::FunctionDecl *F);

/// The function of the program that `S` makes the handler of a signal,
/// `signal(SIGINT, f)`, `action.sa_handler = f`; or null.
const clang::FunctionDecl *signalHandler(const clang::Stmt *S,
                                         const ProgramIndex &Index);

/// Whether it is std::filesystem::path.
bool isPath(clang::QualType T);

/// What a string or a path is declared with, where it is one expression: of its
/// own type, or of one that it is made from; or null.
const clang::Expr *madeFrom(const clang::VarDecl *Name);

class Differing {
public:
  enum Source : unsigned {
    Clock = 1, ///< Clocks, process ids, random devices.
    Rank = 2,  ///< What the accelerator says of this process.
    Part = 4,  ///< This process's batch, where each has its own.
  };

  /// `Decides`: where a condition that differs matters (`mustAgree`), where a
  /// number that differs is given to LibTorch (`agreesIn`), where one is drawn
  /// from a random device by a distribution or to be kept (`agreesAsDraw`), and
  /// where a name is declared (`agreesAsName`), it will be made to agree, so that
  /// what follows from it does not differ.
  Differing(const ProgramIndex &Index, unsigned Sources, bool Decides = false);

  /// Whether the value of an expression can differ.
  bool in(const clang::Stmt *S) const { return in(S, /*ThroughCalls=*/true); }

  /// Whether processes that take different ways at `Condition` come apart:
  /// because of what it controls, or what is left out by leaving.
  bool mustAgree(const clang::Expr *Condition, const clang::Stmt *Controls,
                 const clang::FunctionDecl *In) const;

  /// Whether all processes come to the end of a path in the body of `In`: no
  /// condition around it may differ.
  bool isReachedByAll(llvm::ArrayRef<const clang::Stmt *> Path,
                      const clang::FunctionDecl *In) const;

  /// Whether all processes call `F` wherever one does: no condition that stays
  /// different, because it controls nothing but output, decides about that.
  bool isCalledByAll(const clang::FunctionDecl *F) const;

  /// Whether a string or a path is made to agree where it is declared: a name
  /// with a clock in it, of what all processes read or make.
  bool agreesAsName(const clang::VarDecl *V) const;

  /// Whether a number that a random device draws is made to agree, or else refused:
  /// where it is kept (keptDraws). One that seeds a generator is made to agree there.
  bool agreesAsDraw(const clang::CallExpr *E) const { return Draws.count(E) != 0; }

  /// Whether a function's arguments are made to agree, or else refused.
  bool agreesIn(const clang::FunctionDecl *F) const;

private:
  friend class DifferingWalk;
  /// Not `ThroughCalls`: without what callers pass to a function's parameters.
  bool in(const clang::Stmt *S, bool ThroughCalls) const;
  bool isSource(const clang::Expr *E) const;
  void findUnequalCalls() const;

  const ProgramIndex &Index;
  unsigned Sources;
  bool Decides;
  Quiet Silent;
  std::set<const clang::ValueDecl *> Own, Given;
  std::set<const clang::CallExpr *> Draws; ///< `agreesAsDraw`.
  /// What gather and the like return into: the same everywhere.
  std::set<const clang::ValueDecl *> Shared;
  std::set<const clang::FunctionDecl *> Returning;
  std::set<const clang::ValueDecl *> Batches;
  mutable std::map<const clang::VarDecl *, bool> Names;
  /// Functions that some processes call and others do not; null: not looked for yet.
  mutable std::optional<std::set<const clang::FunctionDecl *>> Unequal;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERING_H
