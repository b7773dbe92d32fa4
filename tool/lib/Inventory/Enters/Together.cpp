//===- Together.cpp - Tensors that belong together ------------------------===//

#include "Together.h"
#include "Returned.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// A function of LibTorch's that calculates with all of what it is given.
static bool calculates(const CallExpr *Call) {
  const FunctionDecl *F = Call->getDirectCallee();
  return (F && isTorch(F) && !givesMemory(F) &&
          !(F->getIdentifier() && F->getName() == "item") &&
          F->getOverloadedOperator() != OO_Subscript) ||
         (F && F->getIdentifier() && isInStd(F) && F->getName() == "tie") ||
         modelCallOf(Call);
}

/// `x`, or a tensor of a struct, `batch.x`.
static bool names(const Expr *E, const ValueDecl *V) {
  E = plain(E);
  if (const auto *M = dyn_cast<MemberExpr>(E);
      M && isa<FieldDecl>(M->getMemberDecl()) && isTensor(M->getType()))
    E = plain(M->getBase());
  const auto *Ref = dyn_cast<DeclRefExpr>(E);
  return Ref && Ref->getDecl() == V;
}

/// What such a function is given: the variable, also in a list, or something
/// else.
static bool isGivenWhole(const ValueDecl *V, const Stmt *S) {
  if (!S)
    return true;
  const auto *E = dyn_cast<Expr>(S);
  if (E && names(E, V))
    return true;
  if (!E || isa<CallExpr, LambdaExpr>(S))
    return isOnlyCalculatedWith(V, S);
  return llvm::all_of(
      S->children(), [&](const Stmt *Child) { return isGivenWhole(V, Child); });
}

bool accel::migrate::isOnlyCalculatedWith(const ValueDecl *V, const Stmt *S) {
  if (!S)
    return true;
  if (const auto *Call = dyn_cast<CallExpr>(S)) {
    const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
    if (calculates(Call))
      return llvm::all_of(
                 Call->arguments(),
                 [&](const Expr *Arg) { return isGivenWhole(V, Arg); }) &&
             (!Member || isGivenWhole(V, Member->getImplicitObjectArgument()));
  }
  if (const auto *Ref = dyn_cast<DeclRefExpr>(S))
    return Ref->getDecl() != V;
  return llvm::all_of(S->children(), [&](const Stmt *Child) {
    return isOnlyCalculatedWith(V, Child);
  });
}

bool accel::migrate::selectsRows(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "slice", "narrow", "index",  "index_select",
      "take",  "select", "gather", "masked_select"};
  const FunctionDecl *F = calleeOf(E);
  return F && F->getIdentifier() && isTorch(F) && Names.count(F->getName());
}

std::string accel::migrate::selectionOf(const Expr *E, SourceText &Text) {
  std::string Result;
  bool Selects = false;
  for (unsigned Depth = 0; E && Depth < 8; ++Depth) {
    E = plain(E);
    const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
    const FunctionDecl *F = calleeOf(E);
    if (!Call || !isTorch(F) || !F->getIdentifier())
      break;
    Selects |= selectsRows(E);
    Result += "." + F->getName().str() + "(";
    for (const Expr *Arg : Call->arguments())
      if (!isa<CXXDefaultArgExpr>(Arg))
        Result += Text.text(Arg->getSourceRange()) + ",";
    Result += ")";
    E = Call->getImplicitObjectArgument();
  }
  return Selects && rootOf(E) ? Result : "";
}

namespace {
class VariablesNamed : public AstVisitor {
public:
  std::set<const VarDecl *> Found;
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const auto *V = dyn_cast<VarDecl>(E->getDecl()))
      Found.insert(V);
    return true;
  }
};
} // namespace

std::set<const VarDecl *> accel::migrate::variablesNamedIn(const Stmt *S) {
  VariablesNamed In;
  In.TraverseStmt(const_cast<Stmt *>(S));
  return std::move(In.Found);
}

namespace {
/// The tensors of the block in which a value is given to one.
class BlockOf : public AstVisitor {
public:
  explicit BlockOf(const Expr *Init) : Init(Init) {}
  bool VisitStmt(Stmt *S) override {
    const auto *Block = dyn_cast<CompoundStmt>(S);
    if (!Block)
      return true;
    std::vector<const VarDecl *> Here;
    bool IsThis = false;
    for (const Stmt *Each : Block->body())
      if (const auto *D = dyn_cast<DeclStmt>(Each))
        for (const Decl *Declared : D->decls())
          if (const auto *V = dyn_cast<VarDecl>(Declared);
              V && V->getInit() && isTensor(V->getType())) {
            IsThis |= plain(V->getInit()) == Init;
            Here.push_back(V);
          }
    if (IsThis)
      Variables = std::move(Here);
    return true;
  }
  std::vector<const VarDecl *> Variables;

private:
  const Expr *Init;
};

/// The variables that hold what a call returns.
class Holders : public AstVisitor {
public:
  explicit Holders(const CallExpr *Call) : Call(Call) {}
  bool VisitVarDecl(VarDecl *V) override {
    const auto *Parts = dyn_cast<DecompositionDecl>(V);
    // auto &[x, y] = kept(): another value is none that it can refer to.
    const QualType T = V->getType();
    const bool Refers =
        T->isLValueReferenceType() && !T->getPointeeType().isConstQualified();
    if (Parts && V->getInit() && plain(V->getInit()) == Call && !Refers)
      Found.append(Parts->bindings().begin(), Parts->bindings().end());
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (const std::optional<Tied> All = tiedOf(E); All && All->Call == Call)
      Found.append(All->Variables.begin(), All->Variables.end());
    return true;
  }
  llvm::SmallVector<const ValueDecl *, 4> Found;

private:
  const CallExpr *Call;
};
} // namespace

std::vector<const VarDecl *>
accel::migrate::tensorsBeside(const Expr *Init, const FunctionDecl *F) {
  BlockOf Block(Init);
  Block.TraverseStmt(F->getBody());
  return std::move(Block.Variables);
}

llvm::SmallVector<const ValueDecl *, 4>
accel::migrate::variablesOf(const CallExpr *Call, const FunctionDecl *F) {
  Holders Found(Call);
  Found.TraverseStmt(F->getBody());
  return std::move(Found.Found);
}
