//===- ProgramIndex.cpp - Functions, loops and steps of the unit ----------===//

#include "ProgramIndex.h"

#include "AstVisitor.h"
#include "Callees.h"
#include "Closures.h"
#include "Losses.h"
#include "TorchTypes.h"

#include "clang/Basic/SourceManager.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {

/// The closures of an initialiser that stands in no function: they are functions of
/// their own.
class ClosuresOutside : public AstPathVisitor {
public:
  explicit ClosuresOutside(std::vector<const FunctionDecl *> &Found)
      : Found(Found) {}
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    if (const CXXMethodDecl *Call = operatorOf(L);
        Call && Call->hasBody() && !Call->isDependentContext())
      Found.push_back(Call);
    return true;
  }

private:
  std::vector<const FunctionDecl *> &Found;
};

class Collector : public AstVisitor {
public:
  explicit Collector(ProgramIndex &Index) : Index(Index) {}

  bool shouldVisitTemplateInstantiations() const override { return true; }
  bool shouldVisitLocalClasses() const override { return true; }

  bool VisitFunctionDecl(FunctionDecl *F) override {
    if (isMissing(F))
      Index.Missing.push_back(F);
    if (!F->doesThisDeclarationHaveABody() || F->isImplicit() ||
        F->isDefaulted())
      return true;
    if (isOfClosure(F))
      return true; // Part of the function that it stands in.
    if (F->isDependentContext()) {
      Index.NeverInstantiated.push_back(F); // Until one is seen.
      return true;
    }
    Index.Functions.push_back(F);
    if (F->isMain())
      Index.Main = F;
    return true;
  }

  bool VisitVarDecl(VarDecl *V) override {
    if (V->hasGlobalStorage() && !V->isStaticLocal() &&
        !V->getDeclContext()->isDependentContext()) {
      Index.Globals.push_back(V);
      ClosuresOutside(Index.Functions)
          .TraverseStmt(const_cast<Expr *>(V->getInit()));
    }
    return true;
  }

  bool VisitFieldDecl(FieldDecl *F) override {
    if (!F->getDeclContext()->isDependentContext())
      Index.Fields.push_back(F);
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

  ProgramIndex &Index;
};

/// Whether `F` is a method of a torch::autograd::Function: what its backward calls
/// backward on is a part of the backward that runs.
bool isOfAutogradFunction(const FunctionDecl *F) {
  const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
  return M && isOrDerives(M->getParent(), "torch::autograd::Function");
}

/// Finds the loops of one function.
class LoopFinder : public AstPathVisitor {
public:
  LoopFinder(ProgramIndex &Index, const FunctionDecl *F,
             std::vector<OwnCall> &Calls, std::vector<BackwardCall> &Gradients)
      : Index(Index), In(F), Writer(F), Calls(Calls), Gradients(Gradients) {}

  bool shouldVisitTemplateInstantiations() const override { return true; }

  bool TraverseLambdaExpr(LambdaExpr *L) override {
    std::vector<const Stmt *> Outside;
    std::swap(Outside, Around);
    const FunctionDecl *OuterWriter = Writer;
    Writer = operatorOf(L);
    const bool Result = AstPathVisitor::TraverseLambdaExpr(L);
    Writer = OuterWriter;
    std::swap(Outside, Around);
    return Result;
  }

  bool TraverseStmt(Stmt *S) override {
    if (!S || !isLoop(S))
      return AstPathVisitor::TraverseStmt(S);
    if (loaderOfLoop(S))
      Index.Loops[S] = {S, In, Writer, true, false};
    Around.push_back(S);
    // Only what is spelled: the hidden begin and end are no reads of their own.
    auto *Range = dyn_cast<CXXForRangeStmt>(S);
    const bool Result = Range ? TraverseStmt(Range->getBody())
                              : AstPathVisitor::TraverseStmt(S);
    Around.pop_back();
    return Result;
  }

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
    const Expr *Object = Member ? Member->getImplicitObjectArgument() : nullptr;
    if (nameOf(F) == "backward" && !isOfAutogradFunction(In)) {
      if (Member && isTensor(Member->getObjectType()))
        Index.Backwards.push_back({E, In, Writer, step(lossOf(Object))});
      else if (qualifiedName(F) == "torch::autograd::backward")
        Index.Backwards.push_back({E, In, Writer, step()});
    } else if (nameOf(F) == "grad" &&
               qualifiedName(F) == "torch::autograd::grad") {
      Gradients.push_back({E, In, Writer, step()});
    }
    if (Member && nameOf(F) == "step" && optimizerOf(Object->getType())) {
      for (const Expr *Arg : E->arguments())
        runs(closureOf(Arg));
      return true;
    }
    const auto *Operator = operatorCall(E, OO_Call);
    if (!Operator || !runs(closureOf(Operator->getArg(0))))
      for (const FunctionDecl *Body : Index.bodiesOf(F))
        runs(Body);
    return true;
  }

private:
  /// Notes a call; false where it is not known of what.
  bool runs(const FunctionDecl *Body) {
    if (Body)
      Calls.push_back({In, Writer, Body, step()});
    return Body;
  }

  /// The loop whose passes are the steps that this place belongs to; of the backward
  /// of a `Loss`, or of one in a list, none that only goes through losses.
  const Stmt *step(const ValueDecl *Loss = nullptr) const {
    for (const Stmt *S : llvm::reverse(Around))
      if (auto It = Index.Loops.find(S);
          It != Index.Loops.end() && It->second.HasLoader)
        return S;
    const auto Makes = llvm::find_if(llvm::reverse(Around), [&](const Stmt *S) {
      return !Loss || !isMadeBefore(Loss, S, Index.Context.getSourceManager());
    });
    return Makes == Around.rend() ? nullptr : *Makes;
  }

  ProgramIndex &Index;
  const FunctionDecl *In, *Writer;
  std::vector<OwnCall> &Calls;
  std::vector<BackwardCall> &Gradients;
  std::vector<const Stmt *> Around;
};

} // namespace

/// Headers that are libraries of C, copied into the project with their bodies
/// (image readers, parsers): functions with C linkage and the static ones that
/// they use, no class and no template, and no word of LibTorch. They are as
/// foreign as if they were installed.
static std::set<FileID> librariesOfC(llvm::ArrayRef<const FunctionDecl *> All,
                                     const SourceManager &SM) {
  std::set<FileID> WithC, WithMore;
  for (const FunctionDecl *F : All) {
    const FileID File = SM.getFileID(SM.getFileLoc(F->getLocation()));
    if (F->isExternC())
      WithC.insert(File);
    else if (F->getFormalLinkage() != Linkage::Internal ||
             isa<CXXMethodDecl>(F) || F->isTemplateInstantiation() ||
             F->isInAnonymousNamespace())
      WithMore.insert(File);
  }
  std::set<FileID> Result;
  for (const FileID File : WithC)
    if (!WithMore.count(File) && File != SM.getMainFileID() &&
        !SM.getBufferData(File).contains("torch"))
      Result.insert(File);
  return Result;
}

ProgramIndex::ProgramIndex(ASTContext &Context) : Context(Context) {
  Collector C(*this);
  C.TraverseUnit(Context);
  const SourceManager &SM = Context.getSourceManager();
  llvm::stable_sort(Functions, [&](const FunctionDecl *A,
                                   const FunctionDecl *B) {
    return SM.isBeforeInTranslationUnit(A->getBeginLoc(), B->getBeginLoc());
  });
  Functions.erase(std::unique(Functions.begin(), Functions.end()),
                  Functions.end());
  const std::set<FileID> Foreign = librariesOfC(Functions, SM);
  llvm::erase_if(Functions, [&](const FunctionDecl *F) {
    return Foreign.count(SM.getFileID(SM.getFileLoc(F->getLocation()))) != 0;
  });
  std::vector<OwnCall> Calls;
  std::vector<BackwardCall> Gradients;
  std::set<const FunctionDecl *> Instantiated;
  for (const FunctionDecl *F : Functions)
    if (const FunctionDecl *Pattern = F->getTemplateInstantiationPattern())
      Instantiated.insert(Pattern->getCanonicalDecl());
  llvm::erase_if(NeverInstantiated, [&](const FunctionDecl *F) {
    return Instantiated.count(F->getCanonicalDecl()) != 0;
  });
  for (const FunctionDecl *F : Functions)
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      addOverrider(M);
  for (const FunctionDecl *F : Functions) {
    Own.insert(F->getCanonicalDecl());
    LoopFinder(*this, F, Calls, Gradients).TraverseStmt(F->getBody());
    for (const CXXCtorInitializer *Init : initsOf(F))
      C.TraverseStmt(Init->getInit());
  }
  // Beside a backward they are derivatives that a loss is made of.
  if (Backwards.empty())
    Backwards = std::move(Gradients);
  markSteps(Calls);
  markAddingUp();
  findOpeners();
  findReached();
  findCallables();
  for (const auto &[Loop, Facts] : Loops)
    if (Facts.Training)
      Callees(*this, Steps).TraverseStmt(const_cast<Stmt *>(Loop));
  for (const BackwardCall &B : Backwards)
    if (!B.Step && Steps.insert(B.Writer).second)
      Callees(*this, Steps).TraverseStmt(B.Writer->getBody());
  findSamples();
  for (const VarDecl *V : Globals)
    if (V->getInit())
      CalleesBeforeMain(*this, BeforeMain)
          .TraverseStmt(const_cast<Expr *>(V->getInit()));
}

void ProgramIndex::markTraining(const Stmt *Loop, const FunctionDecl *In,
                                const FunctionDecl *Writer) {
  BatchLoop &L = Loops[Loop];
  L.Loop = Loop;
  L.In = In;
  L.Writer = Writer;
  L.Training = true;
}

/// A loop that calls a function with a backward trains as if the backward stood
/// in it.
void ProgramIndex::markSteps(llvm::ArrayRef<OwnCall> Calls) {
  // Adds functions until none is new.
  const auto Spread = [&](llvm::function_ref<bool(const OwnCall &)> Adds) {
    for (bool Changed = true; Changed;) {
      Changed = false;
      for (const OwnCall &C : Calls)
        Changed |= Adds(C);
    }
  };
  std::set<const FunctionDecl *> Trains;
  for (const BackwardCall &B : Backwards)
    if (B.Step)
      markTraining(B.Step, B.In, B.Writer);
    else
      Trains.insert(B.Writer);
  Spread([&](const OwnCall &C) {
    return !C.Step && Trains.count(C.To) && Trains.insert(C.From).second;
  });
  for (const OwnCall &C : Calls)
    if (C.Step && Trains.count(C.To)) {
      InStep.insert(C.To);
      markTraining(C.Step, C.In, C.From);
    }
  Spread([&](const OwnCall &C) {
    return !C.Step && InStep.count(C.From) && Trains.count(C.To) &&
           InStep.insert(C.To).second;
  });
  // Whom main comes to, or a loop, as far as calls are seen.
  std::set<const FunctionDecl *> Reached = InStep;
  Spread([&](const OwnCall &C) {
    return (C.Step || C.From->isMain() || isa<CXXConstructorDecl>(C.From) ||
            Reached.count(C.From)) &&
           Reached.insert(C.To).second;
  });
  for (const BackwardCall &B : Backwards)
    if (const FunctionDecl *F = B.Writer;
        !B.Step && !F->isMain() && !isa<CXXConstructorDecl>(F) &&
        !llvm::is_contained(GivenAway, F) && !Reached.count(F))
      GivenAway.push_back(F);
}

bool accel::migrate::decidesAboutParts(const Stmt *S) {
  const auto *Binary = dyn_cast<BinaryOperator>(S);
  return isLoop(S) || isa<IfStmt, SwitchStmt, AbstractConditionalOperator>(S) ||
         (Binary && Binary->isLogicalOp());
}

bool accel::migrate::isLoop(const Stmt *S) {
  // `do { … } while (0)`, the form of a macro that is a statement, is a block.
  if (const auto *Do = dyn_cast<DoStmt>(S)) {
    const Expr *Again = Do->getCond()->IgnoreParenImpCasts();
    const auto *Number = dyn_cast<IntegerLiteral>(Again);
    const auto *Truth = dyn_cast<CXXBoolLiteralExpr>(Again);
    return !(Number && Number->getValue() == 0) &&
           !(Truth && !Truth->getValue());
  }
  return isa<ForStmt, WhileStmt, CXXForRangeStmt>(S);
}

const Expr *accel::migrate::conditionOf(const Stmt *S) {
  if (const auto *If = dyn_cast<IfStmt>(S))
    return If->getCond();
  if (const auto *Switch = dyn_cast<SwitchStmt>(S))
    return Switch->getCond();
  if (const auto *While = dyn_cast<WhileStmt>(S))
    return While->getCond();
  if (const auto *Do = dyn_cast<DoStmt>(S))
    return Do->getCond();
  if (const auto *For = dyn_cast<ForStmt>(S))
    return For->getCond();
  const auto *Choice = dyn_cast<ConditionalOperator>(S);
  return Choice ? Choice->getCond() : nullptr;
}

const Stmt *accel::migrate::bodyOf(const Stmt *Loop) {
  if (const auto *S = dyn_cast<ForStmt>(Loop))
    return S->getBody();
  if (const auto *S = dyn_cast<WhileStmt>(Loop))
    return S->getBody();
  if (const auto *S = dyn_cast<DoStmt>(Loop))
    return S->getBody();
  return cast<CXXForRangeStmt>(Loop)->getBody();
}

const CompoundStmt *accel::migrate::blockOf(const Stmt *Body) {
  if (const auto *Coroutine = dyn_cast_or_null<CoroutineBodyStmt>(Body))
    Body = Coroutine->getBody();
  return dyn_cast_or_null<CompoundStmt>(Body);
}

llvm::ArrayRef<CXXCtorInitializer *>
accel::migrate::initsOf(const FunctionDecl *F) {
  const auto *Ctor = dyn_cast<CXXConstructorDecl>(F);
  return Ctor ? llvm::ArrayRef(Ctor->init_begin(), Ctor->init_end())
              : llvm::ArrayRef<CXXCtorInitializer *>();
}

static void addValues(const Stmt *S, llvm::SmallVectorImpl<const Expr *> &To) {
  if (!S || isa<LambdaExpr>(S))
    return;
  if (const auto *Return = dyn_cast<ReturnStmt>(S))
    To.push_back(Return->getRetValue());
  for (const Stmt *Child : S->children())
    addValues(Child, To);
}

llvm::SmallVector<const Expr *, 2>
accel::migrate::valuesOf(const FunctionDecl *Body) {
  llvm::SmallVector<const Expr *, 2> Values;
  addValues(Body->getBody(), Values);
  return Values;
}

const VarDecl *accel::migrate::declaredBy(const Stmt *S) {
  const auto *D = dyn_cast_or_null<DeclStmt>(S);
  return D && D->isSingleDecl() ? dyn_cast<VarDecl>(D->getSingleDecl())
                                : nullptr;
}

const Expr *accel::migrate::loaderOfLoop(const Stmt *Loop) {
  if (const auto *Range = dyn_cast<CXXForRangeStmt>(Loop)) {
    const Expr *Over = Range->getRangeInit();
    return Over && loaderOf(Over->getType()) ? Over : nullptr;
  }
  const auto *For = dyn_cast<ForStmt>(Loop);
  const VarDecl *Iterator = For ? declaredBy(For->getInit()) : nullptr;
  if (!Iterator)
    return nullptr;
  // Each pass is one batch: `it != loader->end()` and `++it`, no more.
  auto CallOn = [](const Expr *E, llvm::StringRef Name) -> const Expr * {
    const auto *Call = dyn_cast_or_null<CXXMemberCallExpr>(bare(E));
    return nameOf(calleeOf(Call)) == Name &&
                   loaderOf(Call->getImplicitObjectArgument()->getType())
               ? Call->getImplicitObjectArgument()
               : nullptr;
  };
  const Expr *Loader = CallOn(Iterator->getInit(), "begin");
  const auto *Cond = operatorCall(plain(For->getCond()), OO_ExclaimEqual);
  const auto *Inc = operatorCall(plain(For->getInc()), OO_PlusPlus);
  if (!Loader || !variableOf(Loader) || !Cond || !Inc ||
      variableOf(Cond->getArg(0)) != Iterator ||
      variableOf(Inc->getArg(0)) != Iterator)
    return nullptr;
  const Expr *End = CallOn(Cond->getArg(1), "end");
  // With the type that it has, not that of the base class with begin().
  return End && variableOf(End) == variableOf(Loader)
             ? Loader->IgnoreParenImpCasts()
             : nullptr;
}

bool accel::migrate::isReassigned(const VarDecl *V) {
  const auto *F = dyn_cast_or_null<FunctionDecl>(V->getParentFunctionOrMethod());
  if (!F || !F->hasBody())
    return true;
  return anyIn<CXXOperatorCallExpr>(
      F->getBody(), [&](const CXXOperatorCallExpr *E) {
        return E->getOperator() == OO_Equal && variableOf(E->getArg(0)) == V;
      });
}

const FunctionDecl *accel::migrate::closureOf(const Expr *E) {
  while (E) {
    E = plain(E);
    if (const auto *L = dyn_cast<LambdaExpr>(E))
      return operatorOf(L);
    const CXXRecordDecl *D = recordOf(E->getType());
    if (D && D->isLambda())
      return operatorOf(D);
    if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
        Made && Made->getNumArgs() == 1) {
      E = Made->getArg(0);
    } else if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
      const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
      E = V && V->hasLocalStorage() && nameOf(D) == "function" &&
                  !isReassigned(V)
              ? V->getInit()
              : nullptr;
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

bool accel::migrate::isWithin(SourceLocation Loc, const Stmt *S,
                              const SourceManager &SM) {
  Loc = SM.getFileLoc(Loc);
  const SourceLocation Begin = SM.getFileLoc(S->getBeginLoc());
  // Of a macro that is used the last token: arguments stand behind its name.
  SourceLocation End = S->getEndLoc();
  while (End.isMacroID())
    End = SM.isMacroArgExpansion(End) ? SM.getImmediateSpellingLoc(End)
                                      : SM.getImmediateExpansionRange(End).getEnd();
  return !SM.isBeforeInTranslationUnit(Loc, Begin) &&
         !SM.isBeforeInTranslationUnit(End, Loc);
}

bool ProgramIndex::isInStep(SourceLocation Loc, const FunctionDecl *F) const {
  if (Steps.count(F))
    return true;
  // A closure is called where it is written: std::visit([&](auto &net) { … }, model)
  if (isOfClosure(F))
    if (const auto *Outside =
            dyn_cast<FunctionDecl>(F->getParent()->getParent()))
      return isInStep(Loc, Outside);
  const SourceManager &SM = Context.getSourceManager();
  return llvm::any_of(Loops,
                      [&](const auto &Loop) {
                        return Loop.second.Training && Loop.second.In == F &&
                               isWithin(Loc, Loop.first, SM);
                      }) ||
         llvm::any_of(Steps, [&](const FunctionDecl *Step) {
           return isOfClosure(Step) && isWithin(Loc, Step->getBody(), SM);
         });
}

bool ProgramIndex::isOwn(const FunctionDecl *D) const {
  return D && (Own.count(D->getCanonicalDecl()) || isOfClosure(D));
}

/// The closure that a local variable is made of, alone: `auto step = [&] { … };`,
/// `Engine trainer([&](auto &batch) { … });`.
static const LambdaExpr *closureIn(const VarDecl *V) {
  const Stmt *Init = V && V->hasLocalStorage() ? V->getInit() : nullptr;
  while (Init && !isa<LambdaExpr>(Init)) {
    auto Children = Init->children();
    const bool Single = Children.begin() != Children.end() &&
                        std::next(Children.begin()) == Children.end();
    Init = Single ? *Children.begin() : nullptr;
  }
  return dyn_cast_or_null<LambdaExpr>(Init);
}

bool ProgramIndex::holdsBatches(const Stmt *S) const {
  // Nothing runs yet where such a variable is declared.
  if (closureIn(declaredBy(S)))
    return false;
  return anyStmtIn(S, [&](const Stmt *Part) {
    if (Loops.count(Part))
      return true;
    // trainer.run(data), of Trainer trainer([&](auto &batch) { … backward … })
    if (const auto *Ref = dyn_cast<DeclRefExpr>(Part)) {
      const LambdaExpr *L = closureIn(dyn_cast<VarDecl>(Ref->getDecl()));
      return L && llvm::any_of(Backwards, [&](const BackwardCall &B) {
               return isWithin(B.Call->getExprLoc(), L,
                               Context.getSourceManager());
             });
    }
    const auto *Call = dyn_cast<CallExpr>(Part);
    if (!Call)
      return false;
    // A closure that a template calls in its loop.
    if (llvm::any_of(Backwards,
                     [&](const BackwardCall &B) { return B.Call == Call; }))
      return true;
    const FunctionDecl *F = Call->getDirectCallee();
    return F && runsBatches(F);
  });
}

bool ProgramIndex::trainsDirectly(const FunctionDecl *F) const {
  return llvm::any_of(Loops, [&](const auto &Loop) {
    return Loop.second.In == F && Loop.second.Training;
  });
}

bool ProgramIndex::readsLoaders() const {
  return llvm::any_of(Loops,
                      [](const auto &Loop) { return Loop.second.HasLoader; });
}

bool ProgramIndex::runsBatches(const FunctionDecl *F) const {
  return llvm::any_of(ownBodiesOf(F), [&](const FunctionDecl *Body) {
    auto [It, New] = Runs.try_emplace(Body->getCanonicalDecl(), false);
    if (!New)
      return It->second; // Also ends recursion.
    const bool Result = holdsBatches(Body->getBody());
    return Runs[Body->getCanonicalDecl()] = Result;
  });
}
