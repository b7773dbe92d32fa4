//===- FunctionTable.h - Functions as they are spelled ----------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_FUNCTIONTABLE_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_FUNCTIONTABLE_H

#include "SourceText.h"

#include "clang/AST/Decl.h"
#include "clang/AST/ExprCXX.h"

#include <map>

namespace accel::migrate {

/// Gives each spelled function (all instantiations of a template are one) and
/// each lambda its number.
class FunctionTable {
public:
  FunctionTable(SourceText &Text, std::vector<FunctionFact> &Functions)
      : Text(Text), Functions(Functions) {}

  FunctionId of(const clang::FunctionDecl *F);
  FunctionId of(const clang::LambdaExpr *L);
  /// The function or lambda that `Loc`, in the body of `F`, stands in.
  FunctionId at(clang::SourceLocation Loc, const clang::FunctionDecl *F);
  /// A constructor's initialiser, which stands before the body.
  FunctionId ofInitialiser(const clang::Expr *Init);
  /// A handler of a function's own `try`, behind the names of its body.
  FunctionId ofHandler(const clang::CXXCatchStmt *Handler);
  FunctionFact &fact(FunctionId Id) { return Functions[Id]; }

private:
  std::optional<FunctionId> around(const clang::CXXRecordDecl *Lambda);
  FunctionId add(const clang::Stmt *Body, std::string Name, bool IsMain,
                 bool IsLambda, clang::SourceLocation Owner);

  SourceText &Text;
  std::vector<FunctionFact> &Functions;
  std::map<unsigned, FunctionId> ByLocation;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_FUNCTIONTABLE_H
