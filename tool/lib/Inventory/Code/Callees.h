//===- Callees.h - What a piece of code runs --------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_CALLEES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_CALLEES_H

#include "AstVisitor.h"
#include "ProgramIndex.h"

#include <set>

namespace accel::migrate {

/// The functions of the program that a piece of code calls, and those that they call;
/// closures that stand in it are part of it.
class Callees : public AstPathVisitor {
public:
  Callees(const ProgramIndex &Index,
          std::set<const clang::FunctionDecl *> &Found)
      : Index(Index), Found(Found) {}
  bool VisitCallExpr(clang::CallExpr *E) override;
  bool VisitCXXConstructExpr(clang::CXXConstructExpr *E) override;

protected:
  void add(const clang::FunctionDecl *F);
  void addBody(const clang::FunctionDecl *Body);
  /// What a function runs, in front of what its body does.
  virtual void enter(const clang::FunctionDecl *) {}

  const ProgramIndex &Index;
  std::set<const clang::FunctionDecl *> &Found;
};

/// Those that the initialisers of global variables run, also where the library makes an
/// object for them. A closure that is given away there is run by who calls it, which
/// may be main: tests and plugins that enter themselves into a list are such.
class CalleesBeforeMain : public Callees {
public:
  using Callees::Callees;
  bool TraverseLambdaExpr(clang::LambdaExpr *) override { return true; }
  bool VisitCallExpr(clang::CallExpr *E) override;
  bool VisitCXXConstructExpr(clang::CXXConstructExpr *E) override;

private:
  void enter(const clang::FunctionDecl *F) override;
  void constructs(const clang::CXXConstructorDecl *Ctor);
  void constructsIn(clang::QualType T, unsigned Depth = 0);
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_CALLEES_H
