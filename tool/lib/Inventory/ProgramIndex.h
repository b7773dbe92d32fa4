//===- ProgramIndex.h - What the unit has, before it is interpreted -*- C++ -*-===//
//
// One walk over the person's declarations: functions as they are really
// instantiated, the loops over batches in them, and how modules are made.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H
#define ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H

#include "clang/AST/ASTContext.h"
#include "clang/AST/DeclCXX.h"
#include "clang/AST/ExprCXX.h"
#include "clang/AST/StmtCXX.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace accel::migrate {

/// A loop over batches.
struct BatchLoop {
  const clang::Stmt *Loop = nullptr;
  const clang::FunctionDecl *In = nullptr;
  bool HasLoader = false;
  bool Training = false; ///< A backward stands directly in it.
  bool InLambda = false;
};

/// A call of Tensor::backward, and the loops around it.
struct BackwardCall {
  const clang::CXXMemberCallExpr *Call = nullptr;
  const clang::FunctionDecl *In = nullptr;
  const clang::Stmt *Innermost = nullptr; ///< Null: in no loop.
  bool InsideLoaderLoop = false;          ///< Of any depth.
  bool InLambda = false;
};

struct ProgramIndex {
  explicit ProgramIndex(clang::ASTContext &Context);

  clang::ASTContext &Context;

  /// Functions with bodies, without patterns of templates; in the order of
  /// the text.
  std::vector<const clang::FunctionDecl *> Functions;
  const clang::FunctionDecl *Main = nullptr;
  /// Templates with a body that nobody instantiates.
  std::vector<const clang::FunctionDecl *> NeverInstantiated;
  std::vector<const clang::VarDecl *> Globals;
  std::vector<const clang::FieldDecl *> Fields;

  std::map<const clang::Stmt *, BatchLoop> Loops;
  std::vector<BackwardCall> Backwards;

  /// Constructions of LibTorch's modules, by the name of the Impl class.
  std::map<std::string, std::vector<const clang::CXXConstructExpr *>> Modules;
  /// Modules that are put into containers.
  std::set<const clang::CXXRecordDecl *> Contained;

  /// The classes of the loaders that make_data_loader makes.
  std::set<const clang::CXXRecordDecl *> LoadersMade;

  /// Functions of the person's that are used and have no body here.
  std::vector<const clang::FunctionDecl *> Missing;

  /// Functions that a global variable's initialiser calls, before main begins.
  std::set<const clang::FunctionDecl *> BeforeMain;

  /// Whether calling `F` runs a loop over batches, of whatever depth.
  bool runsBatches(const clang::FunctionDecl *F) const;
  /// Whether `S` has a loop over batches in it, or runs one.
  bool holdsBatches(const clang::Stmt *S) const;
  /// Whether `D` is one of the person's own functions, with a visible body.
  bool isOwn(const clang::FunctionDecl *D) const;

private:
  std::set<const clang::FunctionDecl *> Own;
  mutable std::map<const clang::FunctionDecl *, bool> Runs;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H
