//===- Subject.cpp - What all who find facts have in common ---------------===//

#include "Subject.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

void Unit::say(llvm::StringRef Id, SourceLocation Loc, std::string Message,
               std::string Remedy) const {
  Program.Findings.push_back(
      Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
}

void Unit::problem(SourceLocation Loc) const {
  const SourceText::Problem &P = Text.problem();
  say(P.Id, Loc, P.Message, P.Remedy);
}

std::optional<TextRange> Unit::editable(SourceRange Range) const {
  std::optional<TextRange> R = Text.rangeOrMacro(Range);
  if (!R)
    problem(Range.getBegin());
  return R;
}

std::optional<TextRange> Unit::editableIn(const TextRange &Outer,
                                          SourceRange Range) const {
  std::optional<TextRange> R = Text.within(Outer, Range);
  if (!R)
    say("ACL0102", Range.getBegin(),
        "what must change here is put together by macros", "Write it out.");
  return R;
}

Subject::~Subject() = default;

FunctionId Subject::here() {
  if (!Lambdas.empty())
    return Functions.of(Lambdas.back());
  if (Path.size() > 1 && Function && Path[0] == Function->getBody())
    if (const auto *Handler = dyn_cast<CXXCatchStmt>(Path[1]);
        Handler && isa<CXXTryStmt>(Path[0]))
      return Functions.ofHandler(Handler);
  return Initialiser ? Functions.ofInitialiser(Initialiser)
                     : Functions.of(Function);
}

bool Subject::inSamples() const {
  return Index.loadsSamples(Function) ||
         llvm::any_of(Lambdas, [&](const LambdaExpr *L) {
           return Index.loadsSamples(L);
         });
}

bool Subject::inLoop() const {
  return llvm::any_of(Path, isLoop);
}

bool Subject::isConsumed() const {
  return llvm::any_of(Path, [&](const Stmt *S) { return Consumed.count(S); });
}

const CompoundStmt *Subject::block(const Stmt **Child,
                                   bool AroundSwitch) const {
  for (size_t I = Path.size(); I-- > 0;)
    if (const auto *Block = dyn_cast<CompoundStmt>(Path[I]);
        Block && !(AroundSwitch && I > 0 && isa<SwitchStmt>(Path[I - 1]))) {
      if (Child)
        *Child = I + 1 < Path.size() ? Path[I + 1] : nullptr;
      return Block;
    }
  return nullptr;
}

const Stmt *Subject::statementOf(const CallExpr *E) const {
  const Stmt *Statement = nullptr;
  const CompoundStmt *Block = block(&Statement);
  // case A: show(x);
  while (Statement && isa<SwitchCase>(Statement))
    Statement = cast<SwitchCase>(Statement)->getSubStmt();
  const auto *S = dyn_cast_or_null<Expr>(Statement);
  if (!Block || !S)
    return nullptr;
  const Expr *P = plain(S);
  if (const auto *Cast = dyn_cast<ExplicitCastExpr>(P);
      Cast && Cast->getType()->isVoidType())
    P = plain(Cast->getSubExpr());
  return P == E ? S : nullptr;
}

const Stmt *Subject::ownerOfBody() const {
  const Stmt *Child = Path.back();
  for (const Stmt *S : llvm::reverse(llvm::ArrayRef(Path).drop_back())) {
    if (isa<ExprWithCleanups>(S)) {
      Child = S;
      continue;
    }
    const auto *If = dyn_cast<IfStmt>(S);
    const bool Owns = If ? Child == If->getThen() || Child == If->getElse()
                         : isLoop(S) && Child == bodyOf(S);
    return Owns ? S : nullptr;
  }
  return nullptr;
}

bool Subject::isBodyForCondition() const {
  if (!isBodyOfItsOwn())
    return false;
  for (size_t I = Path.size() - 1; I-- > 0;) {
    if (isa<CompoundStmt>(Path[I]))
      break;
    if (const auto *If = dyn_cast<IfStmt>(Path[I]);
        If && If->getElse() && If->getThen() == Path[I + 1])
      return false;
  }
  return true;
}

std::optional<TextRange> Subject::calledName(const Expr *Callee) {
  const auto *Ref = dyn_cast<DeclRefExpr>(Callee->IgnoreParenImpCasts());
  if (!Ref)
    return std::nullopt; // Called through a pointer.
  return editable({Ref->getBeginLoc(), Ref->getLocation()});
}

std::optional<TextRange> Subject::expansion(const Expr *E) {
  std::optional<TextRange> R =
      Text.charRange(Text.SM.getExpansionRange(E->getSourceRange()));
  if (!R)
    problem(E->getExprLoc());
  return R;
}

bool accel::migrate::waitsForKey(const CallExpr *E) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
  const llvm::StringRef Name = nameOf(calleeOf(Call));
  return (Name == "ignore" || (Name == "get" && E->getNumArgs() == 0)) &&
         stdNameOf(declNamedBy(Call->getImplicitObjectArgument())) == "cin";
}
