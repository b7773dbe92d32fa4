//===- Closures.cpp - The functions that lambdas are ----------------------===//

#include "Closures.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

const CXXMethodDecl *accel::migrate::operatorOf(const CXXRecordDecl *Closure) {
  if (const FunctionTemplateDecl *Pattern =
          Closure->getDependentLambdaCallOperator())
    for (const FunctionDecl *Called : Pattern->specializations()) {
      const FunctionDecl *Body = nullptr;
      if (Called->hasBody(Body))
        return cast<CXXMethodDecl>(Body);
    }
  return Closure->getLambdaCallOperator();
}

const CXXMethodDecl *accel::migrate::operatorOf(const LambdaExpr *L) {
  return operatorOf(L->getLambdaClass());
}

bool accel::migrate::isOfClosure(const FunctionDecl *F) {
  const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
  return M && M->getParent()->isLambda();
}

Stmt *accel::migrate::bodyOf(const LambdaExpr *L) {
  const CXXMethodDecl *Operator = operatorOf(L);
  return Operator->getDescribedFunctionTemplate() ? nullptr
                                                  : Operator->getBody();
}
