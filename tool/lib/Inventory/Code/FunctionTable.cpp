//===- FunctionTable.cpp - Functions as they are spelled ------------------===//

#include "FunctionTable.h"

#include "AstVisitor.h"
#include "Closures.h"
#include "ProgramIndex.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {
/// Unqualified names that are declared or used.
class NameFinder : public AstVisitor {
public:
  explicit NameFinder(std::vector<std::string> &Names) : Names(Names) {}
  bool VisitNamedDecl(NamedDecl *D) override {
    add(D);
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (!E->hasQualifier())
      add(E->getDecl());
    return true;
  }
  bool VisitMemberExpr(MemberExpr *E) override {
    if (E->isImplicitAccess())
      add(E->getMemberDecl());
    return true;
  }

private:
  void add(const NamedDecl *D) {
    if (D->getIdentifier())
      Names.push_back(D->getName().str());
  }
  std::vector<std::string> &Names;
};
} // namespace

FunctionId FunctionTable::at(SourceLocation Loc, const FunctionDecl *F) {
  const LambdaExpr *Innermost = nullptr;
  eachIn<LambdaExpr>(F->getBody(), [&](const LambdaExpr *L) {
    if (isWithin(Loc, L->getBody(), Text.SM))
      Innermost = L;
  });
  return Innermost ? of(Innermost) : of(F);
}

FunctionId FunctionTable::add(const Stmt *Body, std::string Name, bool IsMain,
                              bool IsLambda, SourceLocation Owner) {
  auto [It, New] = ByLocation.try_emplace(
      Body->getBeginLoc().getRawEncoding(), Functions.size());
  if (!New)
    return It->second;
  FunctionFact F;
  F.Name = std::move(Name);
  F.IsMain = IsMain;
  F.IsLambda = IsLambda;
  bool HasPlace = true;
  if (const auto *Try = dyn_cast<CXXTryStmt>(Body)) {
    Body = Try->getTryBlock();
    if (IsMain)
      HasPlace = (F.Try = Text.range(Try->getSourceRange())).has_value();
  }
  if (const CompoundStmt *Block = blockOf(Body); Block && HasPlace)
    if (std::optional<LinePoint> Top = Text.topOf(Block, Owner))
      F.Top = *Top;
  Functions.push_back(std::move(F));
  return It->second;
}

FunctionId FunctionTable::of(const FunctionDecl *F) {
  const bool IsLambda = isOfClosure(F);
  const FunctionId Id =
      add(F->getBody(), IsLambda ? "lambda" : F->getNameAsString(),
          !IsLambda && F->isMain(), IsLambda, F->getBeginLoc());
  std::vector<std::string> &Names = Functions[Id].Names;
  if (Names.empty()) {
    NameFinder Finder(Names);
    Finder.TraverseStmt(F->getBody());
    for (const ParmVarDecl *P : F->parameters())
      Names.push_back(P->getNameAsString());
    std::sort(Names.begin(), Names.end());
    Names.erase(std::unique(Names.begin(), Names.end()), Names.end());
    if (IsLambda)
      if (std::optional<FunctionId> Around =
              around(cast<CXXMethodDecl>(F)->getParent()))
        Functions[Id].Around = Around;
  }
  return Id;
}

/// The function whose body a lambda stands in, if all that this declares at its
/// beginning can be used there.
std::optional<FunctionId> FunctionTable::around(const CXXRecordDecl *Lambda) {
  const auto *Outer = dyn_cast_or_null<FunctionDecl>(Lambda->getDeclContext());
  // In a handler of a function's own `try` they are gone.
  if (Lambda->getLambdaCaptureDefault() != LCD_ByRef || !Outer ||
      !Outer->hasBody() || isa<CXXTryStmt>(Outer->getBody()) ||
      !isWithin(Lambda->getLocation(), Outer->getBody(), Text.SM))
    return std::nullopt;
  const FunctionId Id = of(Outer);
  return Functions[Id].IsLambda ? Functions[Id].Around : Id;
}

FunctionId FunctionTable::ofHandler(const CXXCatchStmt *Handler) {
  const FunctionId Id = add(Handler->getHandlerBlock(), "handler", false, true,
                            Handler->getBeginLoc());
  Functions[Id].Top = {}; // Nothing is declared there.
  return Id;
}

FunctionId FunctionTable::ofInitialiser(const Expr *Init) {
  return add(Init, "initialiser", false, true, Init->getBeginLoc());
}

FunctionId FunctionTable::of(const LambdaExpr *L) {
  return of(operatorOf(L));
}
