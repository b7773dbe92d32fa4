//===- Agreement.cpp - Where processes come apart -------------------------===//

#include "Differing.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Whether `S` can be left before its end.
static bool leaps(const Stmt *S, bool InLoop) {
  if (!S || isa<LambdaExpr>(S))
    return false;
  if (isa<ReturnStmt, GotoStmt, IndirectGotoStmt>(S) ||
      (!InLoop && isa<BreakStmt, ContinueStmt>(S)))
    return true;
  if (const auto *Call = dyn_cast<CallExpr>(S))
    if (const FunctionDecl *F = Call->getDirectCallee(); F && F->isNoReturn())
      return true;
  InLoop |= isLoop(S);
  for (const Stmt *Child : S->children())
    if (leaps(Child, InLoop))
      return true;
  return false;
}

bool Differing::mustAgree(const Expr *Condition, const Stmt *Controls,
                          const FunctionDecl *In) const {
  if (!Condition || !in(Condition))
    return false;
  return !Silent.is(Controls) ||
         (In && leaps(Controls, false) && !Silent.is(In->getBody()));
}

bool Differing::isReachedByAll(llvm::ArrayRef<const Stmt *> Path,
                               const FunctionDecl *In) const {
  return llvm::none_of(Path, [&](const Stmt *S) {
    const Expr *Condition = conditionOf(S);
    if (const auto *B = dyn_cast<BinaryOperator>(S); B && B->isLogicalOp())
      Condition = B->getLHS();
    return Condition && in(Condition) && !mustAgree(Condition, S, In);
  });
}

namespace {
/// What a function calls, and what of it only some processes come to.
class CallsOf : public AstAncestorVisitor {
public:
  CallsOf(const Differing &D, const ProgramIndex &Index, const FunctionDecl *In)
      : D(D), Index(Index), In(In) {}

  std::set<const FunctionDecl *> All, OfSome;

  bool VisitCallExpr(CallExpr *E) override {
    calls(E->getDirectCallee());
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    calls(E->getConstructor());
    return true;
  }

private:
  void calls(const FunctionDecl *F) {
    if (!F || isLibrary(F))
      return;
    const bool ByAll = D.isReachedByAll(Path, In);
    for (const FunctionDecl *Body : Index.bodiesOf(F)) {
      All.insert(Body);
      if (!ByAll)
        OfSome.insert(Body);
    }
  }
  const Differing &D;
  const ProgramIndex &Index;
  const FunctionDecl *In;
};
} // namespace

void Differing::findUnequalCalls() const {
  Unequal.emplace();
  std::map<const FunctionDecl *, std::set<const FunctionDecl *>> Calls;
  std::vector<const FunctionDecl *> Work;
  for (const FunctionDecl *F : Index.Functions) {
    CallsOf Found(*this, Index, F);
    Found.TraverseStmt(F->getBody());
    // Whether some processes leave the function before its end.
    const bool IsLeft = anyIn<IfStmt>(F->getBody(), [&](const IfStmt *S) {
      return in(S->getCond()) && leaps(S, false) &&
             !mustAgree(S->getCond(), S, F);
    });
    const auto &Some = IsLeft ? Found.All : Found.OfSome;
    Work.insert(Work.end(), Some.begin(), Some.end());
    if (IsLeft)
      Work.push_back(F);
    Calls[F] = std::move(Found.All);
  }
  while (!Work.empty()) {
    const FunctionDecl *F = Work.back();
    Work.pop_back();
    if (Unequal->insert(F).second)
      Work.insert(Work.end(), Calls[F].begin(), Calls[F].end());
  }
}

bool Differing::isCalledByAll(const FunctionDecl *F) const {
  if (!Unequal)
    findUnequalCalls();
  return Unequal->count(F) == 0;
}

static bool isString(QualType T) {
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  return nameOf(D) == "basic_string" && isInStd(D);
}

bool accel::migrate::isPath(QualType T) {
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  return nameOf(D) == "path" && isInStd(D);
}

const Expr *accel::migrate::madeFrom(const VarDecl *Name) {
  const Expr *Init = Name->getInit();
  if (!Init || !(isString(Name->getType()) || isPath(Name->getType())))
    return nullptr;
  Init = plain(Init);
  // std::string name = buffer;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(Init);
      Made && !isa<CXXTemporaryObjectExpr>(Made)) {
    for (unsigned I = 1; I < Made->getNumArgs(); ++I)
      if (!isa<CXXDefaultArgExpr>(Made->getArg(I)))
        return nullptr;
    return Made->getNumArgs() ? plain(Made->getArg(0)) : nullptr;
  }
  return isString(Init->getType()) || isPath(Init->getType()) ? Init : nullptr;
}

namespace {
/// Whether a string names what all processes read or make: it is given to
/// LibTorch, to <filesystem>, to a file that is read, or to code that does more
/// than to print.
class NameFinder : public AstAncestorVisitor {
public:
  NameFinder(const VarDecl *V, const ProgramIndex &Index, const Quiet &Silent)
      : V(V), Index(Index), Silent(Silent) {}

  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (E->getDecl() != V)
      return true;
    for (const Stmt *S : llvm::reverse(Path)) {
      const FunctionDecl *F = nullptr;
      if (const auto *Call = dyn_cast<CallExpr>(S))
        F = Call->getDirectCallee();
      else if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
        F = Made->getConstructor();
      else if (!isa<Expr>(S))
        break;
      if (F && F->getOverloadedOperator() == OO_LessLess)
        break; // It is printed.
      Found |= F && takesName(F);
    }
    return !Found;
  }
  bool Found = false;

private:
  bool takesName(const FunctionDecl *F) const {
    static const llvm::StringSet<> C = {"mkdir",  "opendir", "chdir", "stat",
                                        "access", "rename",  "remove"};
    const FunctionDecl *Body = nullptr;
    if (isTorch(F))
      return true;
    if (Index.isOwn(F) && F->hasBody(Body))
      return !Silent.is(Body->getBody());
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      return isOrDerives(M->getParent(), "std::basic_ifstream");
    return F->getIdentifier() &&
           ((F->isExternC() && C.count(F->getName())) ||
            llvm::StringRef(qualifiedName(F)).contains("filesystem::"));
  }

  const VarDecl *V;
  const ProgramIndex &Index;
  const Quiet &Silent;
};
} // namespace

bool Differing::agreesAsName(const VarDecl *V) const {
  if (!Decides || !V->hasLocalStorage() || isa<ParmVarDecl>(V) ||
      !madeFrom(V))
    return false;
  auto [It, IsNew] = Names.try_emplace(V, false);
  if (!IsNew)
    return It->second;
  const auto *F = dyn_cast_or_null<FunctionDecl>(V->getParentFunctionOrMethod());
  if (!F || !F->hasBody() || Index.loadsSamples(F) || Index.BeforeMain.count(F))
    return false;
  NameFinder Finder(V, Index, Silent);
  Finder.TraverseStmt(F->getBody());
  return Names[V] = Finder.Found;
}
