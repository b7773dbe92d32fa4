//===- Steps.cpp - What learns: backward and the loops around it ----------===//
//
// Gradients that a backward has computed are those of the whole batch, however
// often and on whatever it is called. So a step needs no shape of its own: any
// number of backwards, models and optimizers, in any order.
//
//===----------------------------------------------------------------------===//

#include "Learns.h"

#include "OptionalModels.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "accel/migrate/ProjectSources.h"

using namespace accel::migrate;
using namespace clang;

/// An argument that says no more than leaving it out does.
static bool saysNothing(const Expr *E) {
  if (isa<CXXDefaultArgExpr>(E))
    return true;
  E = bare(E);
  if (const auto *List = dyn_cast<InitListExpr>(E))
    return List->getNumInits() == 0;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    return Made->getNumArgs() == 0;
  const CXXRecordDecl *D = recordOf(E->getType());
  return nameOf(D) == "nullopt_t";
}

/// Whether the expression would be several arguments.
static bool hasComma(const Expr *E) {
  E = plain(E);
  if (const auto *Binary = dyn_cast<BinaryOperator>(E))
    return Binary->getOpcode() == BO_Comma;
  const auto *Call = dyn_cast<CXXOperatorCallExpr>(E);
  return Call && Call->getOperator() == OO_Comma;
}

/// The function that a closure is made in; of other functions they themselves.
static const FunctionDecl *functionAround(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (!M || !M->getParent()->isLambda())
    return F;
  const DeclContext *Around = M->getParent()->getDeclContext();
  while (Around && !isa<FunctionDecl>(Around))
    Around = Around->getParent();
  return Around ? cast<FunctionDecl>(Around) : F;
}

void Steps::add() {
  for (const BackwardCall &B : Index.Backwards)
    addBackward(B);
  addGlobals();
  for (const auto &[Loop, Facts] : Index.Loops)
    if (Facts.Training && !Bodies.isPartOfStep(Facts) &&
        !Bodies.updatesNothing(Facts))
      addTrainingLoop(Facts);
  for (const BatchLoop &Loop : Bodies.loopsAround())
    addTrainingLoop(Loop);
  for (const StepBodies::StepPlace &Step : Bodies.stepsGivenAway())
    if (Text.mayEdit(Step.Body->getBeginLoc()))
      addPlace(Step);
  checkTemplates();
}

/// The losses of `torch::autograd::backward({a, b})`; none where the list is put
/// together elsewhere, or where one is no operand of a sum.
static std::vector<const Expr *> lossesOf(const CallExpr *Call) {
  const Expr *List = Call->getNumArgs() > 0 ? bare(Call->getArg(0)) : nullptr;
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(List))
    List = Made->getNumArgs() > 0 ? bare(Made->getArg(0)) : nullptr;
  const auto *Inits = dyn_cast_or_null<InitListExpr>(List);
  if (!Inits || llvm::any_of(Inits->inits(), [](const Expr *Loss) {
        return isa<AbstractConditionalOperator>(Loss->IgnoreImplicit());
      }))
    return {};
  return {Inits->inits().begin(), Inits->inits().end()};
}

/// Where the loss of `loss.backward()`, which is `Whole`, is written.
std::optional<TextRange> Steps::lossOf(const CXXMemberCallExpr *Call,
                                       const TextRange &Whole,
                                       BackwardFact &Fact) const {
  const auto [Object, IsPointer] = objectOf(Call);
  Fact.IsPointer = IsPointer;
  const std::optional<TextRange> All =
      editableIn(Whole, Object->getSourceRange());
  // (a + b).backward(): the call has parentheses of its own.
  const auto *Paren = dyn_cast<ParenExpr>(Object->IgnoreImplicit());
  if (!All || !Paren || hasComma(Paren->getSubExpr()))
    return All;
  const std::optional<TextRange> Inner =
      Text.within(*All, Paren->getSubExpr()->getSourceRange());
  // In a macro's text they are around a parameter.
  if (All->Use || !Inner || Inner->Offset == All->Offset)
    return All;
  Fact.Open = All->part(0, Inner->Offset - All->Offset);
  return Inner;
}

/// Where the losses are written of torch::autograd::backward({a, b}), which is `Call`.
std::optional<TextRange> Steps::sumOf(llvm::ArrayRef<const Expr *> Losses,
                                      const TextRange &Call,
                                      BackwardFact &Fact) const {
  const std::optional<TextRange> All = editableIn(
      Call, {Losses.front()->getBeginLoc(), Losses.back()->getEndLoc()});
  if (!All)
    return std::nullopt;
  if (All->Offset > Call.Offset)
    Fact.Open = Call.part(0, All->Offset - Call.Offset);
  for (size_t I = 0; I + 1 < Losses.size(); ++I) {
    const auto One = editableIn(*All, Losses[I]->getSourceRange());
    const auto Next = editableIn(*All, Losses[I + 1]->getSourceRange());
    if (!One || !Next)
      return std::nullopt;
    Fact.Between.push_back(
        One->part(One->Length, Next->Offset - One->Offset - One->Length));
  }
  return All;
}

void Steps::addBackward(const BackwardCall &B) {
  if (!Text.mayEdit(B.Call->getExprLoc()))
    return;
  // Right as it is: its gradients know that they are parts of sums.
  const auto StaysAsItIs = [&](const std::string &Called) {
    say("ACL0109", B.Call->getExprLoc(),
        Called + " and stays as it is", "Nothing has to be done.");
  };
  const auto *Member = dyn_cast<CXXMemberCallExpr>(B.Call);
  if (Bodies.isForInput(B))
    return StaysAsItIs("backward() computes the gradient of an input");
  const FunctionDecl *Callee = B.Call->getDirectCallee();
  const std::vector<const Expr *> Losses =
      Member || Callee->getName() != "backward" ? std::vector<const Expr *>()
                                                : lossesOf(B.Call);
  if (!Member && Losses.empty())
    return StaysAsItIs(qualifiedName(Callee) + " is called");
  BackwardFact Fact;
  const std::optional<TextRange> All = editable(B.Call->getSourceRange());
  if (!All)
    return;
  for (unsigned I = Member ? 0 : 1; I < B.Call->getNumArgs(); ++I) {
    const Expr *Arg = B.Call->getArg(I);
    const llvm::StringRef Name = Callee->getParamDecl(I)->getName();
    if (saysNothing(Arg) ||
        (Name == "create_graph" && constantOf(Arg, Index.Context) == 0))
      continue;
    const bool IsGradient = Member && Name == "gradient";
    if (Name != "retain_graph" && !IsGradient)
      return StaysAsItIs("backward() is called with the argument '" +
                         Name.str() + "'");
    const std::optional<TextRange> R = editableIn(*All, Arg->getSourceRange());
    if (!R)
      return;
    if (IsGradient)
      Fact.Gradient = *R;
    else
      Fact.RetainGraph = Text.text(*R).str();
  }
  const std::optional<TextRange> Part =
      Member ? lossOf(Member, *All, Fact) : sumOf(Losses, *All, Fact);
  if (!Part)
    return;
  unsigned Begin = Part->Offset - All->Offset + Part->Length;
  if (const TextRange &Seed = Fact.Gradient; Seed.Length) {
    const unsigned To = Seed.Offset - All->Offset;
    if (To < Begin)
      return say("ACL0102", B.Call->getExprLoc(),
                 "what must change here is put together by macros",
                 "Write it out.");
    Fact.BeforeGradient = All->part(Begin, To - Begin);
    Begin = To + Seed.Length;
  }
  Fact.In = Functions.at(B.Call->getExprLoc(), B.In);
  Fact.Object = *Part;
  Fact.Tail = All->part(Begin, All->Length - Begin);
  Program.Backwards.push_back(std::move(Fact));
}

/// Whether `F` is a method of an object that has the member `V`.
static bool isMemberOf(const FieldDecl *Member, const FunctionDecl *F) {
  const auto *Method = dyn_cast<CXXMethodDecl>(F);
  const auto *Class = dyn_cast<CXXRecordDecl>(Member->getParent());
  return Method && Class &&
         (Method->getParent()->getCanonicalDecl() ==
              Class->getCanonicalDecl() ||
          Method->getParent()->isDerivedFrom(Class));
}

/// `objectOf`, with the namespaces of a global variable that `In` is not in.
static std::string globalObject(const ValueDecl *Place, const FunctionDecl *In) {
  std::string Object = objectOf(Place, In);
  const auto *V = dyn_cast<VarDecl>(Place);
  if (!V || V->isLocalVarDecl())
    return Object;
  const size_t At = Object.find(V->getName().str());
  return At == std::string::npos ? Object : Object.insert(At, scopesOf(V, In));
}

namespace {
/// The models that a loop calls, in order, that have a name before it; also
/// where that is done in a function of the program.
class ModelFinder : public AstVisitor {
public:
  ModelFinder(const BatchLoop &Loop, const Stmt *Step, const SourceManager &SM)
      : Loop(Loop), At(Step->getBeginLoc()), SM(SM) {}

  bool VisitCallExpr(CallExpr *E) override {
    const std::optional<ModelCall> Call = modelCallOf(E);
    const FunctionDecl *F = E->getDirectCallee();
    if (Call) {
      // head(net(x)): net comes first.
      for (const Expr *Input : Call->Inputs)
        TraverseStmt(const_cast<Expr *>(Input));
      model(Call->Model);
    } else if (F && !isLibrary(F)) {
      // train_step(net, batch)
      for (const Expr *Arg : E->arguments())
        model(Arg);
      // A method of another object calls its own members, which have no name
      // here.
      const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
      if (F->getDefinition() &&
          (!Member ||
           isa<CXXThisExpr>(plain(Member->getImplicitObjectArgument()))))
        enter(F->getDefinition());
    }
    return true;
  }
  /// A lambda, which is called here or by what it is given to: LBFGS.
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const LambdaExpr *L = lambdaIn(E->getDecl()))
      enter(operatorOf(L));
    return true;
  }
  std::vector<std::string> Found;
  std::vector<const VarDecl *> Variables; ///< Those of them that are one.

private:
  void enter(const FunctionDecl *F) {
    if (Entered.insert(F).second && F->hasBody())
      TraverseStmt(F->getBody());
  }
  void model(const Expr *E) {
    if (isAnyModule(E->getType()) || !moduleOf(E->getType()))
      return;
    if (isa<CXXThisExpr>(plain(E)))
      return add("*this");
    const ValueDecl *Model = placeOf(E);
    const CXXRecordDecl *Impl = Model ? moduleOf(Model->getType()) : nullptr;
    if (!Impl || !Model->getIdentifier() ||
        asksFor(Loop.In->getBody(), Model))
      return;
    const auto *Field = dyn_cast<FieldDecl>(Model);
    const auto *Variable = dyn_cast<VarDecl>(Model);
    const bool Named =
        Field ? isMemberOf(Field, Loop.In)
              : Variable && (Variable->hasGlobalStorage() || isAround(Variable));
    if (!Named || !hasParameters(Impl))
      return;
    add(globalObject(Model, Loop.In));
    if (Variable && !llvm::is_contained(Variables, Variable))
      Variables.push_back(Variable);
  }
  /// Whether a local variable is declared before the step in a function that the
  /// step stands in.
  bool isAround(const VarDecl *V) const {
    const auto *In = dyn_cast<FunctionDecl>(V->getDeclContext());
    return In && In->hasBody() && isWithin(At, In->getBody(), SM) &&
           SM.isBeforeInTranslationUnit(V->getLocation(), At);
  }
  void add(std::string Name) {
    if (!llvm::is_contained(Found, Name))
      Found.push_back(std::move(Name));
  }
  /// Losses and activations of LibTorch have none.
  static bool hasParameters(const CXXRecordDecl *Impl) {
    if (!isTorch(Impl))
      return true;
    static constexpr llvm::StringLiteral With[] = {
        "Linear", "Conv",  "Embedding", "Norm",        "Sequential",  "LSTM",
        "GRU",    "RNN",   "PReLU",     "Bilinear",    "Transformer", "Attention",
        "ModuleList", "AdaptiveLogSoftmax"};
    const std::string Name = Impl->getNameAsString();
    return llvm::any_of(With, [&](llvm::StringRef W) {
      return llvm::StringRef(Name).contains(W);
    });
  }

  const BatchLoop &Loop;
  const SourceLocation At; ///< Where the step begins.
  const SourceManager &SM;
  std::set<const FunctionDecl *> Entered;
};

/// The optimizers that a loop steps, in no training loop inside of it.
class SteppedFinder : public AstAncestorVisitor {
public:
  SteppedFinder(const ProgramIndex &Index, const BatchLoop &Loop)
      : Index(Index), Loop(Loop) {}

  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const Expr *Object = E->getImplicitObjectArgument();
    const CXXMethodDecl *M = E->getMethodDecl();
    const ValueDecl *Place =
        nameOf(M) == "step" && optimizerOf(Object->getType()) ? placeOf(Object)
                                                              : nullptr;
    const bool IsInner = llvm::any_of(Path, [&](const Stmt *S) {
      const auto It = Index.Loops.find(S);
      return It != Index.Loops.end() && S != Loop.Loop && It->second.Training;
    });
    if (Place && !IsInner)
      Found.push_back(globalObject(Place, Loop.In));
    return true;
  }
  std::vector<std::string> Found;

private:
  const ProgramIndex &Index;
  const BatchLoop &Loop;
};
} // namespace

/// Of the models that a loop calls, those that the optimizers train which it steps:
/// not a teacher, a target network, or a model that an inner loop trains. All of them
/// where that is not known.
void Steps::keepTrained(std::vector<std::string> &Models,
                        const BatchLoop &Loop, const Stmt *Step) const {
  SteppedFinder Stepped(Index, Loop);
  Stepped.TraverseStmt(const_cast<Stmt *>(Step));
  const FunctionId Here = Functions.at(Step->getBeginLoc(), Loop.In);
  std::set<std::string> Trained;
  std::vector<std::string> OfHere;
  bool IsClear = true;
  for (const std::string &Name : Stepped.Found) {
    const auto IsIt = [&](const OptimizerFact &Fact) {
      return Fact.Object == Name && !Fact.Models.empty();
    };
    if (llvm::none_of(Program.Optimizers, IsIt))
      return;
    std::set<unsigned> MadeHere; // In several blocks, under one name?
    for (const OptimizerFact &Fact : Program.Optimizers) {
      if (IsIt(Fact))
        Trained.insert(Fact.Models.begin(), Fact.Models.end());
      if (Fact.Object != Name || Fact.In != Here)
        continue;
      MadeHere.insert(Fact.SetUp.At.Offset);
      for (const std::string &Model : Fact.Models)
        if (!llvm::is_contained(OfHere, Model))
          OfHere.push_back(Model);
    }
    IsClear &= MadeHere.size() == 1;
  }
  const auto IsTrained = [&](const std::string &Model) {
    return Trained.count(Model) != 0;
  };
  if (llvm::any_of(Models, IsTrained))
    llvm::erase_if(Models,
                   [&](const std::string &Model) { return !IsTrained(Model); });
  else if (IsClear && !OfHere.empty())
    Models = std::move(OfHere); // What is called is a closure, of one caller.
}

void Steps::addTrainingLoop(const BatchLoop &Loop) {
  if (!Text.mayEdit(Loop.Loop->getBeginLoc()))
    return say("ACL0014", Loop.Loop->getBeginLoc(),
               "the training loop stands in a file that may not be changed",
               "Name the file on the command line, or make the folder it is in "
               "part of the project.");
  if (const auto Place = Bodies.placeOf(Loop);
      Place && Text.mayEdit(Place->Body->getBeginLoc()))
    return Place->In ? addStepElsewhere(Loop, *Place)
                     : addStep(Loop, Place->Body, Loop.In, &*Place);
  const std::vector<const CXXMethodDecl *> Closures = Bodies.closuresOf(Loop);
  for (const CXXMethodDecl *Closure : Closures)
    addStep(Loop, Closure->getBody(), functionAround(Closure));
  if (Closures.empty())
    addStep(Loop, bodyOf(Loop.Loop), Loop.In);
}

/// A step in a function that the loop calls: once for all loops that do.
void Steps::addStepElsewhere(const BatchLoop &Loop,
                             const StepBodies::StepPlace &Place) {
  if (StepPlaces.insert(Place.Body).second)
    addPlace(Place);
  ModelFinder Models(Loop, bodyOf(Loop.Loop), Text.SM);
  Models.TraverseStmt(const_cast<Stmt *>(bodyOf(Loop.Loop)));
  prepareWithoutOptimizer(Loop, Models.Variables);
}

void Steps::addPlace(const StepBodies::StepPlace &Place) {
  BatchLoop Own;
  Own.Loop = Place.Body;
  Own.In = Own.Writer = functionAround(Place.In);
  addStep(Own, Own.Loop, Own.In, &Place);
}

void Steps::addStep(const BatchLoop &Loop, const Stmt *Step,
                    const FunctionDecl *In,
                    const StepBodies::StepPlace *Place) {
  std::optional<BodyPoint> Body = Text.bodyTop(Step);
  if (Body && Place && Place->Guard)
    if (std::optional<LinePoint> Point = Text.after(Place->Guard))
      Body->Top = std::move(*Point);
  if (!Body)
    return say("ACL0102", Loop.Loop->getBeginLoc(),
               "the training loop is written by a macro, so that no statement "
               "can be put into it",
               "Write the loop out.");
  TrainingLoopFact Fact;
  Fact.In = Functions.at(Step->getBeginLoc(), In);
  Fact.Body = *Body;
  if (Place)
    Fact.Kind = Place->isFunction() ? TrainingLoopFact::Function
                                    : TrainingLoopFact::Block;
  ModelFinder Models(Loop, Step, Text.SM);
  Models.TraverseStmt(const_cast<Stmt *>(Step));
  // In a macro's text they have other names at each use.
  if (!Fact.Body.Top.At.Use) {
    Fact.Models = std::move(Models.Found);
    keepTrained(Fact.Models, Loop, Step);
  }
  prepareWithoutOptimizer(Loop, Models.Variables);
  Fact.Inner = llvm::any_of(Index.Loops, [&](const auto &Other) {
    return Other.first != Loop.Loop && Other.second.Training &&
           Other.second.In == Loop.In &&
           isWithin(Loop.Loop->getBeginLoc(), Other.first, Text.SM);
  });
  Program.TrainingLoops.push_back(std::move(Fact));
}

/// The block in a function's body in which a variable is declared, and the
/// statement.
static std::pair<const CompoundStmt *, const Stmt *>
declarationOf(const VarDecl *V, const Stmt *Body) {
  std::pair<const CompoundStmt *, const Stmt *> Found;
  anyIn<CompoundStmt>(Body, [&](const CompoundStmt *Block) {
    for (const Stmt *S : Block->body())
      if (const auto *D = dyn_cast<DeclStmt>(S);
          D && llvm::is_contained(D->decls(), V))
        Found = {Block, S};
    return Found.first != nullptr;
  });
  return Found;
}

/// `p.sub_(rate * p.grad())`, or an optimizer of parameters that come from elsewhere:
/// the loop's models are prepared behind their declaration, so that gradients are
/// brought together at once.
void Steps::prepareWithoutOptimizer(const BatchLoop &Loop,
                                    llvm::ArrayRef<const VarDecl *> Models) {
  if (!Prepares && llvm::any_of(Program.Optimizers, [](const auto &Fact) {
        return !Fact.Models.empty();
      }))
    return;
  for (const VarDecl *Model : Models) {
    if (Model->hasGlobalStorage() && !Model->isStaticLocal()) {
      Prepares |= prepareGlobals(nullptr, {Model}, Loop.In);
      continue;
    }
    const auto [Block, At] = declarationOf(Model, Loop.In->getBody());
    if (!Block || !isWithin(Loop.Loop->getBeginLoc(), Block, Text.SM))
      continue;
    OptimizerFact Fact;
    const std::optional<LinePoint> Point = Text.afterInMacro(
        lastSetUp(Block, At, nullptr, {Model}, Index));
    if (!Point)
      continue;
    Fact.In = Functions.at(At->getBeginLoc(), Loop.In);
    Fact.Models = {objectOf(Model, Loop.In)};
    Fact.SetUp = *Point;
    setGroup(Fact, Block, At, *this);
    Program.Optimizers.push_back(std::move(Fact));
    Prepares = true;
  }
}

/// What is made before main begins is prepared where main, or `Trains` where that is
/// not seen, comes to the first training. Until then its weights are each process's
/// own, unless it is started by accel launch.
bool Steps::prepareGlobals(const VarDecl *Optimizer,
                           llvm::ArrayRef<const VarDecl *> Models,
                           const FunctionDecl *Trains) {
  const FunctionDecl *In = Index.Main ? Index.Main : Trains;
  OptimizerFact Fact;
  if (!setUpBeforeTraining(Fact, In, *this))
    return false;
  const auto IsPrepared = [&](const std::string &Name) {
    return llvm::any_of(Program.Optimizers, [&](const OptimizerFact &Fact) {
      return Fact.Object == Name || llvm::is_contained(Fact.Models, Name);
    });
  };
  if (Optimizer && !IsPrepared(globalObject(Optimizer, In)))
    Fact.Object = globalObject(Optimizer, In);
  for (const VarDecl *Model : Models)
    if (const std::string Name = globalObject(Model, In); !IsPrepared(Name))
      Fact.Models.push_back(Name);
  if (Fact.Object.empty() && Fact.Models.empty())
    return false;
  Program.Optimizers.push_back(std::move(Fact));
  return true;
}

/// The global models that an expression names.
static std::vector<const VarDecl *> globalModelsIn(const Expr *E) {
  std::vector<const VarDecl *> Found;
  eachIn<DeclRefExpr>(E, [&](const DeclRefExpr *Ref) {
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    if (V && V->hasGlobalStorage() && moduleOf(V->getType()) &&
        !llvm::is_contained(Found, V))
      Found.push_back(V);
  });
  return Found;
}

/// Optimizers that are global variables, with their models.
void Steps::addGlobals() {
  const auto Trains = llvm::find_if(Index.Loops, [](const auto &Loop) {
    return Loop.second.Training;
  });
  if (Trains == Index.Loops.end())
    return;
  for (const VarDecl *V : Index.Globals) {
    if (!optimizerOf(V->getType()) || !V->getInit())
      continue;
    const std::vector<const VarDecl *> Models = globalModelsIn(V->getInit());
    if (!Models.empty())
      prepareGlobals(V, Models, Trains->second.In);
  }
}

/// What is used nowhere runs nowhere: it is left as it is.
void Steps::checkTemplates() {
  for (const FunctionDecl *F : Index.NeverInstantiated)
    if (Text.mayEdit(F->getLocation()) &&
        callsFunction(Text.text(F->getSourceRange()), "backward"))
      say("ACL0103", F->getLocation(),
          "the template '" + F->getNameAsString() +
              "' is used nowhere in what was read, and stays as it is",
          "Name a file on the command line that uses it.");
}
