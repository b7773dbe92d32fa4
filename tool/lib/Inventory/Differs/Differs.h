//===- Differs.h - What may differ ------------------------------*- C++ -*-===//
//
// Clocks, random devices, the standard input, signals, threads: broadcast from
// process 0, or refused. Differing.h follows values.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERS_H

#include "Code/Subject.h"
#include "Differing.h"

namespace accel::migrate {

/// Conditions on clocks and the like, and where their values go.
class Decisions : public Subject {
public:
  Decisions(const Unit &U, Walk &W, const Differing &Differs)
      : Subject(U, W), Differs(Differs) {}
  void decision(const clang::Stmt *S, const clang::Expr *Condition) override;
  void range(const clang::CXXForRangeStmt *S) override;
  void variable(const clang::VarDecl *V) override;
  void call(const clang::CallExpr *E, const clang::FunctionDecl *F) override;
  void construct(const clang::CXXConstructExpr *E) override;

private:
  void differingArgument(const clang::Expr *E, const clang::FunctionDecl *F,
                         llvm::ArrayRef<const clang::Expr *> Args);
  /// A loop over a container, which stands `At`.
  void addressOrder(clang::QualType Container, clang::SourceLocation At,
                    const clang::Stmt *Body);

  const Differing &Differs;
};

/// Draws from the host's generators, in data sets and elsewhere.
struct HostDraws {
  struct Draw {
    const clang::ValueDecl *Generator = nullptr; ///< Null: not known.
    const clang::Expr *Call = nullptr;
  };
  std::vector<Draw> InDatasets, Elsewhere;
  bool HasWorkers = false; ///< Some loader loads in threads.

  /// Where data sets draw all processes load whole batches; where that cannot be
  /// had, or does not help, it is said.
  void check(const Unit &U) const;
};

/// Random numbers of the host, and seeds.
class Randomness : public Subject {
public:
  Randomness(const Unit &U, Walk &W, const Differing &Differs,
             HostDraws &Draws)
      : Subject(U, W), Differs(Differs), Draws(Draws) {}
  void call(const clang::CallExpr *E, const clang::FunctionDecl *F) override;
  void construct(const clang::CXXConstructExpr *E) override;
  /// A field that is initialised where it is declared; `Early`: objects of the
  /// class may be made before main.
  void field(const clang::FieldDecl *F, const clang::CXXRecordDecl *Owner,
             bool Early);
  /// A global variable.
  void global(const clang::VarDecl *V);

private:
  void hostDraw(const clang::CallExpr *E);
  void fill(const clang::CallExpr *E, const clang::Expr *Device);
  void deviceDraw(const clang::CallExpr *E, const clang::Expr *Device);
  void keptDraw(const clang::CallExpr *E);
  void seed(const clang::Expr *Whole, const clang::Expr *Seed);

  const Differing &Differs;
  HostDraws &Draws;
};

/// What reads the standard input.
class InputFacts : public Subject {
public:
  using Subject::Subject;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
  void name(const clang::DeclRefExpr *E) override;
};

/// Threads, signals, distribution of the program's own.
class Hazards : public Subject {
public:
  using Subject::Subject;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
  void construct(const clang::CXXConstructExpr *E) override;
  void assigned(const clang::Expr *To, const clang::Expr *Made) override;
  void region(const clang::Stmt *S) override;

private:
  void handles(clang::SourceLocation Loc, const clang::FunctionDecl *Handler);
  void threadStarts(const clang::Expr *E,
                    llvm::ArrayRef<const clang::Expr *> Args);
  void givenToPool(const clang::Expr *E, const clang::FunctionDecl *F,
                   llvm::ArrayRef<const clang::Expr *> Args);
  bool defer(const clang::CallExpr *E, const clang::FunctionDecl *F);
  /// Says it, and returns true, where the code trains.
  bool threadRuns(clang::SourceLocation Loc, const clang::Stmt *S);
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DIFFERS_H
