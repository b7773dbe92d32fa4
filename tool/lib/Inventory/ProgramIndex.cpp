//===- ProgramIndex.cpp - What the unit has, before it is interpreted -----===//

#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/RecursiveASTVisitor.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {

class Collector : public RecursiveASTVisitor<Collector> {
public:
  explicit Collector(ProgramIndex &Index) : Index(Index) {}

  bool shouldVisitTemplateInstantiations() const { return true; }
  bool shouldVisitImplicitCode() const { return false; }

  bool VisitFunctionDecl(FunctionDecl *F) {
    if (isMissing(F))
      Index.Missing.push_back(F);
    if (!F->doesThisDeclarationHaveABody() || F->isImplicit() ||
        F->isDefaulted())
      return true;
    if (F->isDependentContext()) {
      if (FunctionTemplateDecl *T = F->getDescribedFunctionTemplate())
        if (T->spec_begin() == T->spec_end())
          Index.NeverInstantiated.push_back(F);
      return true;
    }
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      if (M->getParent()->isLambda())
        return true; // Part of the function that it stands in.
    Index.Functions.push_back(F);
    if (F->isMain())
      Index.Main = F;
    return true;
  }

  bool VisitVarDecl(VarDecl *V) {
    if (V->hasGlobalStorage() && !V->isStaticLocal() &&
        !V->getDeclContext()->isDependentContext())
      Index.Globals.push_back(V);
    return true;
  }

  bool VisitFieldDecl(FieldDecl *F) {
    if (!F->getDeclContext()->isDependentContext())
      Index.Fields.push_back(F);
    return true;
  }

  bool VisitCXXConstructExpr(CXXConstructExpr *E) {
    const CXXRecordDecl *Made = E->getConstructor()->getParent();
    // Model{nullptr} is filled later.
    if (E->getConstructor()->isCopyOrMoveConstructor() ||
        (E->getNumArgs() == 1 &&
         E->getArg(0)->getType()->isNullPtrType()))
      return true;
    if (const CXXRecordDecl *Impl = moduleOf(Index.Context.getRecordType(Made)))
      if (isTorch(Impl) && Impl->getIdentifier()) {
        Index.Modules[Impl->getName().str()].push_back(E);
        if (Impl->getName() == "SequentialImpl" ||
            Impl->getName() == "ModuleListImpl")
          for (const Expr *Arg : E->arguments())
            contain(Arg);
      }
    return true;
  }

  bool VisitCallExpr(CallExpr *E) {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F || !F->getIdentifier())
      return true;
    if (F->getName() == "make_data_loader" && isTorch(F))
      if (const CXXRecordDecl *Made = loaderOf(F->getReturnType()))
        Index.LoadersMade.insert(Made->getCanonicalDecl());
    if (F->getName() == "push_back" || F->getName() == "emplace_back")
      if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E))
        if (const CXXRecordDecl *D =
                recordOf(Call->getImplicitObjectArgument()->getType());
            D && isOrDerives(D, "torch::nn::Module"))
          for (const Expr *Arg : E->arguments())
            contain(Arg);
    return true;
  }

private:
  /// Whether the rest of the program may need a body for `F`. What LibTorch's
  /// templates do with a module or a data set is not always to be seen.
  static bool isMissing(const FunctionDecl *F) {
    if (F->isDefined() || F->isImplicit() || F->isDeleted() ||
        F->isDefaulted() || F->isPureVirtual() || F->isDependentContext() ||
        F->getBuiltinID() || F != F->getFirstDecl())
      return false;
    if (F->isReferenced() || F->isUsed())
      return true;
    const auto *M = dyn_cast<CXXMethodDecl>(F);
    return M && (M->isVirtual() ||
                 isOrDerives(M->getParent(), "torch::nn::Module") ||
                 isOrDerives(M->getParent(),
                             "torch::data::datasets::BatchDataset"));
  }

  void contain(const Expr *Arg) {
    if (const CXXRecordDecl *D = moduleOf(Arg->getType()))
      Index.Contained.insert(D->getCanonicalDecl());
    // {"name", Linear(2, 3)}: NamedAnyModule, AnyModule.
    for (const Stmt *Child : Arg->children())
      if (const auto *E = dyn_cast_or_null<Expr>(Child))
        contain(E);
  }

  ProgramIndex &Index;
};

/// Finds the loops of one function.
class LoopFinder : public RecursiveASTVisitor<LoopFinder> {
public:
  LoopFinder(ProgramIndex &Index, const FunctionDecl *F)
      : Index(Index), In(F) {}

  bool shouldVisitTemplateInstantiations() const { return true; }
  bool shouldVisitLambdaBody() const { return true; }

  bool TraverseLambdaExpr(LambdaExpr *L) {
    ++Lambdas;
    std::vector<const Stmt *> Outside;
    std::swap(Outside, Around);
    const bool Result = RecursiveASTVisitor::TraverseLambdaExpr(L);
    std::swap(Outside, Around);
    --Lambdas;
    return Result;
  }

#define LOOP(Class)                                                           \
  bool Traverse##Class(Class *S) {                                             \
    return around(S, [&] { return RecursiveASTVisitor::Traverse##Class(S); }); \
  }
  LOOP(ForStmt)
  LOOP(WhileStmt)
  LOOP(DoStmt)
#undef LOOP

  bool TraverseCXXForRangeStmt(CXXForRangeStmt *S) {
    const bool Loader =
        S->getRangeInit() && loaderOf(S->getRangeInit()->getType());
    if (Loader) {
      Index.Loops[S] = {S, In, true, false, Lambdas > 0};
      ++Loaders;
    }
    // Only what is spelled: the hidden begin and end are no reads of their own.
    const bool Result = around(S, [&] { return TraverseStmt(S->getBody()); });
    Loaders -= Loader;
    return Result;
  }

  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) {
    const CXXMethodDecl *M = E->getMethodDecl();
    if (!M || !M->getIdentifier() || M->getName() != "backward" ||
        !isTensor(E->getObjectType()))
      return true;
    const Stmt *Innermost = Around.empty() ? nullptr : Around.back();
    Index.Backwards.push_back({E, In, Innermost, Loaders > 0, Lambdas > 0});
    if (Innermost && !Lambdas) {
      BatchLoop &Loop = Index.Loops[Innermost];
      Loop.Loop = Innermost;
      Loop.In = In;
      Loop.Training = true;
    }
    return true;
  }

private:
  template <typename Body> bool around(const Stmt *S, Body Traverse) {
    Around.push_back(S);
    const bool Result = Traverse();
    Around.pop_back();
    return Result;
  }

  ProgramIndex &Index;
  const FunctionDecl *In;
  std::vector<const Stmt *> Around;
  unsigned Loaders = 0, Lambdas = 0;
};

} // namespace

namespace {
/// Everything that is called from a piece of code.
class Callees : public RecursiveASTVisitor<Callees> {
public:
  explicit Callees(std::set<const FunctionDecl *> &Found) : Found(Found) {}
  bool shouldVisitLambdaBody() const { return true; }
  bool VisitCallExpr(CallExpr *E) {
    add(E->getDirectCallee());
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) {
    add(E->getConstructor());
    return true;
  }

private:
  void add(const FunctionDecl *F) {
    const FunctionDecl *Body = nullptr;
    if (F && F->hasBody(Body) && !isTorch(F) && !isInStd(F) &&
        Found.insert(Body).second)
      TraverseStmt(Body->getBody());
  }
  std::set<const FunctionDecl *> &Found;
};
} // namespace

ProgramIndex::ProgramIndex(ASTContext &Context) : Context(Context) {
  Collector C(*this);
  for (Decl *D : Context.getTraversalScope()) {
    if (auto *Unit = dyn_cast<TranslationUnitDecl>(D)) {
      for (Decl *Top : Unit->decls())
        if (!Context.getSourceManager().isInSystemHeader(Top->getLocation()))
          C.TraverseDecl(Top);
    } else {
      C.TraverseDecl(D);
    }
  }
  const SourceManager &SM = Context.getSourceManager();
  llvm::stable_sort(Functions, [&](const FunctionDecl *A,
                                   const FunctionDecl *B) {
    return SM.isBeforeInTranslationUnit(A->getBeginLoc(), B->getBeginLoc());
  });
  Functions.erase(std::unique(Functions.begin(), Functions.end()),
                  Functions.end());
  for (const FunctionDecl *F : Functions) {
    Own.insert(F->getCanonicalDecl());
    LoopFinder(*this, F).TraverseStmt(F->getBody());
    if (const auto *Ctor = dyn_cast<CXXConstructorDecl>(F))
      for (const CXXCtorInitializer *Init : Ctor->inits())
        C.TraverseStmt(Init->getInit());
  }
  for (const VarDecl *V : Globals)
    if (V->getInit())
      Callees(BeforeMain).TraverseStmt(const_cast<Expr *>(V->getInit()));
}

bool ProgramIndex::isOwn(const FunctionDecl *D) const {
  return D && (Own.count(D->getCanonicalDecl()) ||
               (isa<CXXMethodDecl>(D) &&
                cast<CXXMethodDecl>(D)->getParent()->isLambda()));
}

namespace {
class CallFinder : public RecursiveASTVisitor<CallFinder> {
public:
  explicit CallFinder(const ProgramIndex &Index) : Index(Index) {}
  bool shouldVisitLambdaBody() const { return true; }
  bool VisitStmt(Stmt *S) {
    Found |= Index.Loops.count(S) != 0;
    if (const auto *Call = dyn_cast<CallExpr>(S))
      if (const FunctionDecl *F = Call->getDirectCallee())
        if (Index.isOwn(F))
          Found |= Index.runsBatches(F);
    return !Found;
  }
  bool Found = false;

private:
  const ProgramIndex &Index;
};
} // namespace

bool ProgramIndex::holdsBatches(const Stmt *S) const {
  CallFinder Finder(*this);
  Finder.TraverseStmt(const_cast<Stmt *>(S));
  return Finder.Found;
}

bool ProgramIndex::runsBatches(const FunctionDecl *F) const {
  const FunctionDecl *Definition = nullptr;
  if (!F->hasBody(Definition))
    return false;
  auto [It, New] = Runs.try_emplace(Definition->getCanonicalDecl(), false);
  if (!New)
    return It->second; // Also ends recursion.
  const bool Result = holdsBatches(Definition->getBody());
  return Runs[Definition->getCanonicalDecl()] = Result;
}
