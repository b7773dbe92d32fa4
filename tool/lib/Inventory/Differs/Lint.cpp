//===- Lint.cpp - Collective calls that not every process makes -----------===//

#include "accel/migrate/Lint.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Differing.h"
#include "Code/ProgramIndex.h"
#include "Code/SourceText.h"
#include "Code/TorchTypes.h"

#include "accel/migrate/Findings.h"

#include "llvm/ADT/StringSet.h"

#include <deque>
#include <utility>

using namespace accel::migrate;
using namespace clang;

namespace {

/// What every process must do, or none.
struct Together {
  enum KindTy {
    None,
    Collective, ///< Meets the other processes.
    Training,   ///< Changes parameters, or how they are changed.
    Random,     ///< Draws from LibTorch's generators.
  } Kind = None;
  std::string Name;

  explicit operator bool() const { return Kind != None; }
};

bool isTorchRandom(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "rand",       "rand_like", "randn",      "randn_like", "randint",
      "randint_like", "randperm", "normal",    "normal_",    "uniform_",
      "random_",    "bernoulli", "bernoulli_", "multinomial", "exponential_",
      "poisson",    "log_normal_", "cauchy_",  "geometric_", "manual_seed"};
  return isTorch(F) && Names.count(F->getName());
}

/// What a call, a construction or a loop does by itself.
Together togetherOf(const Stmt *S) {
  if (const auto *Loop = dyn_cast<CXXForRangeStmt>(S))
    if (loaderOf(Loop->getRangeInit()->getType()))
      return {Together::Collective, "the loop over a data loader"};
  if (const auto *Made = dyn_cast<CXXConstructExpr>(S)) {
    const CXXConstructorDecl *C = Made->getConstructor();
    if (isAcceleratorMethod(C) && C->getParent()->getName() == "Accelerator" &&
        !C->isCopyOrMoveConstructor())
      return {Together::Collective, "the Accelerator's constructor"};
  }
  const auto *Call = dyn_cast<CallExpr>(S);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  if (!F || !F->getIdentifier())
    return {};
  const llvm::StringRef Name = F->getName();
  if (isAcceleratorMethod(F)) {
    static const llvm::StringSet<> Names = {
#define ACCEL_COLLECTIVE(Name) Name,
#include "Collectives.def"
    };
    if (Names.count(Name))
      return {Together::Collective, "'" + Name.str() + "'"};
    return {};
  }
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(S)) {
    const QualType T = Member->getImplicitObjectArgument()->getType();
    if (Name == "step" && (optimizerOf(T) || schedulerOf(T)))
      return {Together::Training, "'step'"};
    if (Name == "backward" && isTensor(T))
      return {Together::Training, "'backward'"};
  }
  if (isTorchRandom(F))
    return {Together::Random, "'" + Name.str() + "'"};
  return {};
}

/// Why processes are apart: a condition, an exit under one, a handler.
struct Split {
  const Stmt *By = nullptr;
  bool OfPart = false; ///< Decided by this process's part of a batch.
  bool Exit = false;   ///< Some have left; nothing else is different.
  mutable bool Reported = false;
};

/// What some processes leave, from what was walked.
struct Exits {
  const Split *Loop = nullptr;     ///< By `break`.
  const Split *Pass = nullptr;     ///< By `continue`.
  const Split *Function = nullptr; ///< By `return`, or the end.

  void add(const Exits &Other) {
    Loop = Loop ? Loop : Other.Loop;
    Pass = Pass ? Pass : Other.Pass;
    Function = Function ? Function : Other.Function;
  }
  const Split *any() const { return Function ? Function : Loop ? Loop : Pass; }
};

/// Whether batches are distributed tensors, of which all processes read the same
/// numbers.
bool matchesSingleDevice(const ProgramIndex &Index) {
  return llvm::any_of(Index.Functions, [](const FunctionDecl *F) {
    return anyIn<CXXMemberCallExpr>(
        F->getBody(), [](const CXXMemberCallExpr *E) {
          return nameOf(E->getMethodDecl()) == "match_single_device" &&
                 E->getNumArgs() == 1;
        });
  });
}

class Linter {
public:
  Linter(ASTContext &Context, const PlanOptions &Options, LintScope Scope)
      : Text(Context, Options), Index(Context),
        Ranks(Index, Differing::Clock | Differing::Rank),
        Parts(Index, Scope == LintScope::All && !matchesSingleDevice(Index)
                         ? Differing::Part
                         : 0) {}

  std::vector<Finding> run();

private:
  Exits walk(const Stmt *S, const Split *Under);
  Exits walkLoop(const Stmt *Loop, const Expr *Cond, const Stmt *Body,
                 const Stmt *Inc, const Split *Under);
  Exits walkBranches(const Stmt *Condition, llvm::ArrayRef<const Stmt *> Ways,
                     const Split *Under);
  void meet(const Stmt *S, const Together &What, const Split *Under);
  void checkCall(const Stmt *S, const Split *Under);
  const Split *splitBy(const Stmt *Condition);
  bool leavesQuietly(const Stmt *S) const;
  const Split *make(const Stmt *By, bool OfPart = false);
  const Split *leftBy(const Split *Under);
  /// What a function's body does, through calls.
  Together summary(const FunctionDecl *F);
  Together within(const Stmt *S, const Stmt **Where = nullptr);
  /// Whether `S` is a `throw` of the program, or a call of what has one.
  bool throws(const Stmt *S);
  bool hasThrow(const Stmt *S);
  void sequence(const Stmt *S, std::vector<std::string> &Names);
  void say(llvm::StringRef Id, SourceLocation Loc, std::string Message,
           std::string Remedy);
  std::string spelled(const Stmt *S);

  SourceText Text;
  ProgramIndex Index;
  Differing Ranks, Parts;
  std::deque<Split> Splits;
  std::map<const FunctionDecl *, Together> Summaries;
  std::map<const FunctionDecl *, bool> Throwing;
  bool Thrown = false; ///< By all processes, in the `try` that is walked.
  std::vector<Finding> Found;
  const FunctionDecl *Function = nullptr;
};

} // namespace

const Split *Linter::make(const Stmt *By, bool OfPart) {
  Splits.push_back({By, OfPart, false, false});
  return &Splits.back();
}

const Split *Linter::leftBy(const Split *Under) {
  Splits.push_back({Under->By, Under->OfPart, true, false});
  return &Splits.back();
}

const Split *Linter::splitBy(const Stmt *Condition) {
  if (!Condition)
    return nullptr;
  if (Ranks.in(Condition))
    return make(Condition);
  if (Parts.in(Condition))
    return make(Condition, /*OfPart=*/true);
  return nullptr;
}

std::string Linter::spelled(const Stmt *S) {
  std::string Result;
  for (const char C : Text.text(S->getSourceRange()))
    if (!isspace(static_cast<unsigned char>(C)))
      Result += C;
    else if (!Result.empty() && Result.back() != ' ')
      Result += ' ';
  if (Result.size() > 60)
    Result = Result.substr(0, 57) + "...";
  return Result;
}

void Linter::say(llvm::StringRef Id, SourceLocation Loc, std::string Message,
                 std::string Remedy) {
  addOnce(Found, Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
}

Together Linter::within(const Stmt *S, const Stmt **Where) {
  if (!S)
    return {};
  Together Best;
  auto Take = [&](const Together &New, const Stmt *At) {
    if (New && (!Best || New.Kind < Best.Kind)) {
      Best = New;
      if (Where)
        *Where = At;
    }
  };
  Take(togetherOf(S), S);
  if (const auto *Call = dyn_cast<CallExpr>(S))
    if (const FunctionDecl *F = Call->getDirectCallee())
      Take(summary(F), S);
  if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
    Take(summary(Made->getConstructor()), S);
  if (Best.Kind == Together::Collective)
    return Best;
  const Stmt *Inner = nullptr;
  for (const Stmt *Child : S->children()) {
    Take(within(Child, &Inner), Inner ? Inner : Child);
    if (Best.Kind == Together::Collective)
      return Best;
  }
  return Best;
}

Together Linter::summary(const FunctionDecl *F) {
  Together Best;
  if (!F)
    return Best;
  for (const FunctionDecl *Body : Index.ownBodiesOf(F)) {
    auto [It, New] = Summaries.try_emplace(Body);
    if (New) { // Not so again: also ends recursion.
      Together Inner = within(Body->getBody());
      if (Inner && Body->getIdentifier())
        Inner.Name = "'" + Body->getNameAsString() + "', which comes to " +
                     Inner.Name;
      Summaries[Body] = Inner;
    }
    const Together &Found = Summaries[Body];
    if (Found && (!Best || Found.Kind < Best.Kind))
      Best = Found;
  }
  return Best;
}

bool Linter::throws(const Stmt *S) {
  if (isa<CXXThrowExpr>(S))
    return true;
  const auto *Call = dyn_cast<CallExpr>(S);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  if (!F)
    return false;
  return any_of(Index.ownBodiesOf(F), [&](const FunctionDecl *Body) {
    auto [It, New] = Throwing.try_emplace(Body, false);
    if (New) { // Not so again: also ends recursion.
      const bool Has = hasThrow(Body->getBody());
      Throwing[Body] = Has;
      return Has;
    }
    return It->second;
  });
}

bool Linter::hasThrow(const Stmt *S) {
  return existsIn(
      S, [&](const Stmt *Part) { return throws(Part); }, LambdaBodies::Skip);
}

/// The collective calls of a branch, in order.
void Linter::sequence(const Stmt *S, std::vector<std::string> &Names) {
  if (!S)
    return;
  for (const Stmt *Child : S->children())
    sequence(Child, Names);
  Together What = togetherOf(S);
  if (const auto *Call = dyn_cast<CallExpr>(S); Call && !What)
    What = summary(Call->getDirectCallee());
  if (What)
    Names.push_back(What.Name);
  // How often a loop runs is not known.
  if (isLoop(S) && within(S))
    Names.push_back("a loop at " +
                    S->getBeginLoc().printToString(Text.SM));
}

void Linter::meet(const Stmt *S, const Together &What, const Split *Under) {
  if (!Under || (Under->Exit && Under->Reported))
    return;
  const bool Handler = isa<CXXCatchStmt>(Under->By);
  const std::string Cause =
      Handler ? "the handler of an exception"
              : "'" + spelled(Under->By) + "'";
  const SourceLocation Loc = S->getBeginLoc();
  // A model's own noise under a condition on the data is its business.
  if (What.Kind == Together::Random && (Under->Exit || Under->OfPart))
    return;
  Under->Reported = true;
  if (What.Kind != Together::Collective)
    return say("ACL0212", Loc,
               What.Name + (Under->Exit ? " comes behind an exit by "
                                        : " runs under ") +
                   Cause + (Handler ? ", which some processes enter and others "
                                      "do not: they come to differ"
                                    : ", which is not the same on all "
                                      "processes: they come to differ"),
               What.Kind == Together::Random
                   ? "Draw on all processes, and use it on one."
                   : "Do it on all processes, or on none.");
  if (Under->OfPart)
    return say("ACL0213", Under->By->getBeginLoc(),
               Cause + " depends on this process's part of the batch, and "
                       "decides whether it comes to " +
                   What.Name,
               "Decide on a value that reduce, gather_for_metrics or "
               "broadcast_object returned.");
  if (Under->Exit)
    return say("ACL0211", Loc,
               What.Name + " is not reached by the processes that " + Cause +
                   " made leave before",
               "Let all processes go on to here, or leave together: "
               "broadcast_object gives all of them process 0's decision.");
  say("ACL0210", Loc,
      What.Name + " is called under " + Cause +
          (Handler ? ", which some processes enter and others do not"
                   : ", which is not the same on all processes"),
      "Call it on all processes, before, and use the result on one.");
}

/// Calls and constructions, by themselves.
void Linter::checkCall(const Stmt *S, const Split *Under) {
  Together What = togetherOf(S);
  if (!What) {
    if (const auto *Call = dyn_cast<CallExpr>(S))
      What = summary(Call->getDirectCallee());
    else if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
      What = summary(Made->getConstructor());
  }
  if (What)
    meet(S, What, Under);
}

Exits Linter::walkBranches(const Stmt *Condition,
                           llvm::ArrayRef<const Stmt *> Ways,
                           const Split *Under) {
  const Split *New = splitBy(Condition);
  if (New) {
    // Both ways meet the others alike.
    std::vector<std::string> First;
    sequence(Ways.front(), First);
    bool Alike = Ways.size() > 1 && !First.empty();
    for (const Stmt *Way : Ways.drop_front()) {
      std::vector<std::string> Other;
      sequence(Way, Other);
      Alike &= Other == First;
    }
    if (Alike)
      New = nullptr;
  }
  Exits Result;
  for (const Stmt *Way : Ways)
    Result.add(walk(Way, New ? New : Under));
  return Result;
}

Exits Linter::walkLoop(const Stmt *Loop, const Expr *Cond, const Stmt *Body,
                       const Stmt *Inc, const Split *Under) {
  const Split *Times = splitBy(Cond);
  Exits Inside;
  if (Cond)
    Inside.add(walk(Cond, Times ? Times : Under));
  Inside.add(walk(Body, Times ? Times : Under));
  if (Inc)
    Inside.add(walk(Inc, Times ? Times : Under));
  // Who has left does not come to the next pass.
  if (const Split *Left = Inside.Loop ? Inside.Loop : Inside.Function;
      Left && !Left->Reported) {
    const Stmt *Where = nullptr;
    if (const Together What = within(Body, &Where))
      meet(Where, What, Left);
  }
  Exits Result;
  Result.Function = Inside.Function;
  return Result;
}

/// Whether `S` leaves the function without saying that something went wrong. A
/// process that fails is seen by the others, which stop.
bool Linter::leavesQuietly(const Stmt *S) const {
  auto Fails = [&](const Expr *Code) {
    const std::optional<int64_t> Value =
        Code ? constantOf(Code, Index.Context) : std::nullopt;
    return Value && *Value != 0;
  };
  if (const auto *Return = dyn_cast<ReturnStmt>(S))
    return !Function->isMain() || !Fails(Return->getRetValue());
  const auto *Call = dyn_cast<CallExpr>(S);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  return F && F->isNoReturn() && Call->getNumArgs() == 1 &&
         nameOf(F).ends_with_insensitive("exit") && !Fails(Call->getArg(0));
}

Exits Linter::walk(const Stmt *S, const Split *Under) {
  Exits Result;
  if (!S)
    return Result;
  if (const auto *L = dyn_cast<LambdaExpr>(S)) {
    // Its exits are its own.
    for (const LambdaCapture &C : L->captures())
      if (C.capturesVariable() && L->isInitCapture(&C))
        if (const auto *V = dyn_cast<VarDecl>(C.getCapturedVar()))
          walk(V->getInit(), Under);
    walk(bodyOf(L), Under);
    return Result;
  }
  if (const auto *If = dyn_cast<IfStmt>(S)) {
    walk(If->getInit(), Under);
    walk(If->getConditionVariableDeclStmt(), Under);
    walk(If->getCond(), Under);
    return walkBranches(If->getCond(), {If->getThen(), If->getElse()}, Under);
  }
  if (const auto *Switch = dyn_cast<SwitchStmt>(S)) {
    walk(Switch->getCond(), Under);
    Result = walkBranches(Switch->getCond(), {Switch->getBody()}, Under);
    Result.Loop = nullptr;
    return Result;
  }
  if (const auto *C = dyn_cast<ConditionalOperator>(S)) {
    walk(C->getCond(), Under);
    return walkBranches(C->getCond(), {C->getTrueExpr(), C->getFalseExpr()},
                        Under);
  }
  if (const auto *B = dyn_cast<BinaryOperator>(S); B && B->isLogicalOp()) {
    walk(B->getLHS(), Under);
    return walkBranches(B->getLHS(), {B->getRHS()}, Under);
  }
  if (const auto *For = dyn_cast<ForStmt>(S)) {
    walk(For->getInit(), Under);
    return walkLoop(S, For->getCond(), For->getBody(), For->getInc(), Under);
  }
  if (const auto *While = dyn_cast<WhileStmt>(S)) {
    walk(While->getConditionVariableDeclStmt(), Under);
    return walkLoop(S, While->getCond(), While->getBody(), nullptr, Under);
  }
  if (const auto *Do = dyn_cast<DoStmt>(S))
    return walkLoop(S, Do->getCond(), Do->getBody(), nullptr, Under);
  if (const auto *Range = dyn_cast<CXXForRangeStmt>(S)) {
    walk(Range->getInit(), Under);
    walk(Range->getRangeInit(), Under);
    checkCall(S, Under);
    return walkLoop(S, nullptr, Range->getBody(), nullptr,
                    Ranks.in(Range->getRangeInit())
                        ? make(Range->getRangeInit())
                        : Under);
  }
  if (const auto *Block = dyn_cast<CompoundStmt>(S)) {
    const Split *Here = Under;
    for (const Stmt *Child : Block->body()) {
      const Exits Left = walk(Child, Here);
      Result.add(Left);
      if (Here == Under && Left.any())
        Here = Left.any();
    }
    return Result;
  }
  if (const auto *Try = dyn_cast<CXXTryStmt>(S)) {
    const bool ThrownBefore = std::exchange(Thrown, false);
    Result = walk(Try->getTryBlock(), Under);
    // What the program itself throws, on all processes, all of them catch.
    const bool ByAll = Thrown;
    Thrown |= ThrownBefore;
    for (unsigned I = 0; I < Try->getNumHandlers(); ++I)
      // Its exits are those of a process that failed; what the others do then
      // is the runtime's.
      walk(Try->getHandler(I)->getHandlerBlock(),
           ByAll ? Under : make(Try->getHandler(I)));
    return Result;
  }
  Thrown |= !Under && throws(S);
  for (const Stmt *Child : S->children()) {
    // accelerator.on_main_process([&] { … })
    const auto *Call = dyn_cast<CallExpr>(S);
    const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
    if (F && isAcceleratorMethod(F) && nameOf(F) == "on_main_process" &&
        Child != Call->getCallee()) {
      const auto *E = dyn_cast_or_null<Expr>(Child);
      const Expr *Inner = E ? bare(E) : nullptr;
      const Split *Main = make(Call->getCallee());
      if (const auto *L = dyn_cast_or_null<LambdaExpr>(Inner))
        walk(bodyOf(L), Main);
      else if (const LambdaExpr *L =
                   Inner ? lambdaIn(variableOf(Inner)) : nullptr)
        walk(bodyOf(L), Main);
      continue;
    }
    walk(Child, Under);
  }
  checkCall(S, Under);
  if (Under) {
    const Split *Left = Under->Exit ? Under : leftBy(Under);
    if (isa<BreakStmt>(S))
      Result.Loop = Left;
    else if (isa<ContinueStmt>(S))
      Result.Pass = Left;
    else if (leavesQuietly(S))
      Result.Function = Left;
  }
  return Result;
}

std::vector<Finding> Linter::run() {
  for (const FunctionDecl *F : Index.Functions)
    if (Text.mayEdit(F->getLocation())) {
      Function = F;
      walk(F->getBody(), nullptr);
    }
  sortByPlace(Found);
  return std::move(Found);
}

std::vector<Finding>
accel::migrate::lintCollectives(ASTContext &Context,
                                const PlanOptions &Options, LintScope Scope) {
  return Linter(Context, Options, Scope).run();
}
