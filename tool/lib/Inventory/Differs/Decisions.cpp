//===- Decisions.cpp - What depends on clocks and the like ----------------===//
//
// A condition that differs between processes may choose what is printed. Where
// it chooses what is trained, it becomes process 0's.
//
//===----------------------------------------------------------------------===//

#include "Differs.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether a condition will be the same everywhere because its parts will.
static bool isSettled(const Expr *E, const Differing &Differs,
                      const FunctionDecl *In) {
  E = plain(E);
  if (!Differs.in(E))
    return true;
  if (const auto *U = dyn_cast<UnaryOperator>(E))
    return isSettled(U->getSubExpr(), Differs, In);
  const auto *B = dyn_cast<BinaryOperator>(E);
  if (!B || !B->isLogicalOp())
    return false;
  // The left side becomes process 0's where the right side must run alike.
  return (isSettled(B->getLHS(), Differs, In) ||
          Differs.mustAgree(B->getLHS(), B->getRHS(), In)) &&
         isSettled(B->getRHS(), Differs, In);
}

/// TORCH_CHECK(file, "cannot write"), assert(file): a macro that ends the program.
static bool isCheck(const Stmt *S) {
  if (const auto *If = dyn_cast<IfStmt>(S))
    return neverReturns(If->getThen()) && !If->getElse();
  const auto *Choice = dyn_cast<ConditionalOperator>(S);
  return Choice && (neverReturns(Choice->getTrueExpr()) ||
                    neverReturns(Choice->getFalseExpr()));
}

void Decisions::decision(const Stmt *S, const Expr *Condition) {
  if (!Condition || !Text.mayEdit(Condition->getExprLoc()) ||
      !Differs.mustAgree(Condition, S, Function) ||
      isSettled(Condition, Differs, Function))
    return;
  auto Refuse = [&](std::string Why) {
    say("ACL0127", Condition->getExprLoc(),
           "a condition differs between processes and decides what is trained" +
               std::move(Why),
           "Decide on one process and broadcast the decision, or on a value "
           "that is the same on all.");
  };
  const Expr *E = plain(Condition);
  const QualType T = Condition->getType();
  if (!T->isArithmeticType() && !T->isEnumeralType())
    return Refuse("");
  if (const auto *B = dyn_cast<BinaryOperator>(E); B && B->isCommaOp())
    return Refuse("");
  // A process that fails ends them all.
  if (E->getBeginLoc().isMacroID() && isCheck(S) &&
      !Text.range(E->getSourceRange()))
    return;
  if (const auto *If = dyn_cast<IfStmt>(S);
      If && If->hasVarStorage())
    return Refuse(", and is declared in it");
  if (inSamples())
    return Refuse(", in a function that a data set calls");
  if (Index.BeforeMain.count(Function))
    return Refuse(", before main begins");
  if (std::optional<TextRange> R = editable(E->getSourceRange())) {
    const bool Converts = !E->getType()->isArithmeticType() ||
                          isa_and_nonnull<CXXConversionDecl>(calleeOf(E));
    edit(Converts ? EditKind::DifferingTruth : EditKind::DifferingDecision, *R);
  }
}

void Decisions::range(const CXXForRangeStmt *S) {
  if (Differs.mustAgree(S->getRangeInit(), S, Function))
    say("ACL0127", S->getRangeInit()->getExprLoc(),
           "the loop goes over something that differs between processes",
           "Go over something that is the same on all processes.");
  addressOrder(S->getRangeInit()->getType(), S->getRangeInit()->getExprLoc(),
               S->getBody());
}

/// const std::string folder = "runs/" + timestamp();
void Decisions::variable(const VarDecl *V) {
  if (!V->getInit() || !Text.mayEdit(V->getLocation()) ||
      !Differs.in(V->getInit()) || !Differs.agreesAsName(V) ||
      !Differs.isReachedByAll(Path, Function))
    return;
  const Expr *Made = madeFrom(V);
  if (std::optional<TextRange> R = editable(Made->getSourceRange()))
    edit(isPath(Made->getType())     ? EditKind::DifferingPath
         : recordOf(Made->getType()) ? EditKind::DifferingName
                                     : EditKind::DifferingCName,
         *R);
}

void Decisions::call(const CallExpr *E, const FunctionDecl *F) {
  differingArgument(E, F, {E->getArgs(), E->getNumArgs()});
  // for (auto it = map.begin(); …)
  if (const auto *M = dyn_cast<CXXMemberCallExpr>(E);
      M && (nameOf(F) == "begin" || nameOf(F) == "cbegin"))
    for (size_t I = Path.size() - 1; I > 0; --I)
      if (const auto *For = dyn_cast<ForStmt>(Path[I - 1]);
          For && For->getInit() == Path[I])
        addressOrder(M->getImplicitObjectArgument()->getType(), E->getExprLoc(),
                     For->getBody());
}

void Decisions::construct(const CXXConstructExpr *E) {
  if (!E->getConstructor()->isCopyOrMoveConstructor())
    differingArgument(E, E->getConstructor(), {E->getArgs(), E->getNumArgs()});
}

/// std::vector<double>, std::array<int64_t, 4>, std::string: process 0's can be
/// had at once.
static bool isListOfNumbers(QualType T) {
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(
      T.getNonReferenceType()->getAsCXXRecordDecl());
  if (!D || !isInStd(D) ||
      (nameOf(D) != "vector" && nameOf(D) != "array" &&
       nameOf(D) != "basic_string") ||
      D->getTemplateArgs()[0].getKind() != TemplateArgument::Type)
    return false;
  const QualType Element = D->getTemplateArgs()[0].getAsType();
  return Element->isArithmeticType() && !Element->isBooleanType();
}

/// The numbers in `E` that differ, as `{n, 4}` or `2 * n` has them, and lists of
/// numbers; whether nothing else in it does.
static bool numbersIn(const Expr *E, const Differing &Differs,
                      std::vector<const Expr *> &Numbers) {
  E = plain(E);
  if (!Differs.in(E))
    return true;
  if (E->getType()->isArithmeticType() ||
      (isListOfNumbers(E->getType()) &&
       isa<DeclRefExpr, MemberExpr, CXXOperatorCallExpr>(E))) {
    Numbers.push_back(E);
    return true;
  }
  if (!isa<InitListExpr, CXXConstructExpr, CXXStdInitializerListExpr,
           CXXBindTemporaryExpr, MaterializeTemporaryExpr>(E))
    return false;
  return llvm::all_of(E->children(), [&](const Stmt *Part) {
    const auto *Element = dyn_cast_or_null<Expr>(Part);
    return Element && numbersIn(Element, Differs, Numbers);
  });
}

/// What differs must not come into the training: a number becomes process 0's.
void Decisions::differingArgument(const Expr *E, const FunctionDecl *F,
                                   llvm::ArrayRef<const Expr *> Args) {
  if (!isTorch(F) || seeds(F) || !Text.mayEdit(E->getExprLoc()) ||
      nameOf(F) == "save")
    return;
  // `out << seconds << device`: LibTorch writes to the stream, it does not read it.
  if (F->getOverloadedOperator() == OO_LessLess && Args.size() == 2 &&
      isOrDerives(recordOf(Args[0]->getType()), "std::basic_ostream"))
    Args = Args.drop_front();
  for (const Expr *Arg : Args) {
    std::vector<const Expr *> Numbers;
    if (numbersIn(Arg, Differs, Numbers) &&
        (Numbers.empty() || (!inSamples() && !Index.BeforeMain.count(Function) &&
                             Differs.isReachedByAll(Path, Function)))) {
      for (const Expr *Number : Numbers)
        edit(EditKind::DifferingNumber, Number->getSourceRange());
      continue;
    }
    if (Differs.in(Arg))
      return say("ACL0127", Arg->getExprLoc(),
                    "a value that differs between processes is given to '" +
                        F->getNameAsString() + "'",
                    "Use a value that is the same on all processes, as "
                    "accelerator.broadcast_object(value) returns.");
  }
}
