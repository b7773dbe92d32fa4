//===- Differing.cpp - What can differ between processes ------------------===//

#include "Differing.h"

#include "Draws.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isPerProcess(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "now",       "time",          "clock",         "gettimeofday",
      "getpid",    "clock_gettime", "gethostname",   "get_id",
      "times",     "ftime",         "timespec_get",  "omp_get_wtime",
      "getTickCount", "GetTickCount", "GetTickCount64", "tellp", "ftell",
      "gettid",    "getrusage",     "QueryPerformanceCounter"};
  if (F->getIdentifier())
    return Names.count(F->getName()) &&
           (isInStd(F) || F->isExternC() || !F->hasBody());
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && nameOf(M->getParent()) == "random_device";
}

/// accel::Accelerator, what it derives from, and its state.
static bool isAcceleratorClass(const CXXRecordDecl *D) {
  static const llvm::StringSet<> Names = {"Accelerator", "AcceleratorState",
                                          "Collectives", "MainProcessOutput"};
  return Names.count(nameOf(D)) &&
         llvm::StringRef(qualifiedName(D)).starts_with("accel::");
}

bool accel::migrate::isAcceleratorMethod(const FunctionDecl *F) {
  const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
  return M && isAcceleratorClass(M->getParent());
}

/// What tells processes apart.
static bool tellsRank(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "is_main_process",  "is_local_main_process", "is_last_process",
      "process_index",    "local_process_index",   "on_main_process"};
  return isAcceleratorMethod(F) && Names.count(nameOf(F));
}

/// What returns the same on all processes, whatever it is given.
static bool makesEqual(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "broadcast_object",   "broadcast",   "gather",  "gather_for_metrics",
      "reduce",             "full",        "num_processes",
      "clip_grad_norm_"};
  return isAcceleratorMethod(F) && Names.count(nameOf(F));
}

/// std::ostringstream, std::stringstream.
static bool isStringStream(const CXXRecordDecl *D) {
  return (nameOf(D) == "basic_ostringstream" ||
          nameOf(D) == "basic_stringstream") &&
         isInStd(D);
}

/// Objects that stay the same on all processes though they are given something
/// that differs: models, what trains them, and streams, but for those that make
/// strings.
static bool keepsEqual(QualType T) {
  if (moduleOf(T) || optimizerOf(T) || schedulerOf(T) || loaderOf(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  return D && D->getIdentifier() &&
         (D->getName() == "Accelerator" || isEngine(D) || isSeedSequence(D) ||
          (isOrDerives(D, "std::basic_ios") && !isStringStream(D)));
}

/// What functions of C write text and times into: strftime(buffer, …),
/// localtime_r(&time, &parts); or null.
static const Expr *filledBy(const CallExpr *E, const FunctionDecl *F) {
  static const llvm::StringSet<> First = {
      "strftime", "snprintf", "sprintf", "vsnprintf", "vsprintf", "strcpy",
      "strncpy",  "strcat",   "strncat", "memcpy",    "memmove"};
  static const llvm::StringSet<> Second = {"localtime_r", "gmtime_r",
                                           "ctime_r", "asctime_r"};
  if (!F->getIdentifier() || E->getNumArgs() < 2 ||
      !(F->isExternC() || isInStd(F)))
    return nullptr;
  if (First.count(F->getName()))
    return E->getArg(0);
  return Second.count(F->getName()) ? E->getArg(1) : nullptr;
}

/// The variable or field that is written where `E` is written.
static const ValueDecl *writtenIn(const Expr *E) {
  while (E) {
    E = plain(E);
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return Ref->getDecl();
    if (const auto *M = dyn_cast<MemberExpr>(E)) {
      if (const auto *F = dyn_cast<FieldDecl>(M->getMemberDecl())) {
        // A field of a local struct, or of this object.
        return F;
      }
      E = M->getBase();
    } else if (const auto *S = dyn_cast<ArraySubscriptExpr>(E)) {
      E = S->getBase();
    } else if (const auto *U = dyn_cast<UnaryOperator>(E)) {
      E = U->getSubExpr();
    } else if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
      E = O->getArg(0);
    } else if (const auto *C = dyn_cast<CXXMemberCallExpr>(E)) {
      E = C->getImplicitObjectArgument();
    } else if (const auto *X = dyn_cast<ExplicitCastExpr>(E)) {
      E = X->getSubExpr();
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

/// How an output went, which only the main process makes: `out.is_open()`,
/// `!out`, `fopen(path, "w")`; whether a folder was made, where all make it.
static bool tellsOfFile(const CallExpr *E, const FunctionDecl *F,
                        const ProgramIndex &Index) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (M) {
    const Expr *Object = nullptr;
    if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E))
      Object = Call->getImplicitObjectArgument();
    else if (const auto *Call = dyn_cast<CXXOperatorCallExpr>(E))
      Object = Call->getArg(0);
    const CXXRecordDecl *D = Object ? recordOf(plain(Object)->getType()) : nullptr;
    if (!D || !isOrDerives(D, "std::basic_ofstream"))
      return false;
    if (isa<CXXConversionDecl>(M) || M->getOverloadedOperator() == OO_Exclaim)
      return true;
    static const llvm::StringSet<> Names = {"is_open", "good", "fail", "bad",
                                            "eof", "rdstate"};
    return Names.count(nameOf(M));
  }
  if (!F->getIdentifier())
    return false;
  const llvm::StringRef Name = F->getName();
  if (makesFolder(F))
    return !tellsFolderMade(E); // See OutputFacts::answer.
  const ProgramIndex::Opener *Opener = Index.openerOf(E);
  if (!F->isExternC() && !Opener)
    return false;
  if (Opener || (Name == "fopen" && E->getNumArgs() == 2))
    if (const auto *Mode = dyn_cast<StringLiteral>(
            bare(E->getArg(Opener ? Opener->Mode : 1))))
      return Mode->getString().find_first_of("wa") != llvm::StringRef::npos;
  return false;
}

/// Whether a call reads a file of C's.
static bool reads(const CallExpr *E, const VarDecl *File) {
  static const llvm::StringSet<> Names = {"fread", "fgets",  "fgetc", "getc",
                                          "fscanf", "getline"};
  const FunctionDecl *F = E->getDirectCallee();
  return F && F->isExternC() && Names.count(nameOf(F)) &&
         llvm::any_of(E->arguments(), [&](const Expr *Arg) {
           return variableOf(Arg) == File;
         });
}

bool accel::migrate::tellsOfInput(const CallExpr *E, const FunctionDecl *F) {
  if (nameOf(F) != "ftell" || E->getNumArgs() != 1)
    return false;
  const auto *File = dyn_cast_or_null<VarDecl>(variableOf(E->getArg(0)));
  const auto *In =
      File ? dyn_cast_or_null<FunctionDecl>(File->getParentFunctionOrMethod())
           : nullptr;
  return In && In->hasBody() &&
         anyIn<CallExpr>(In->getBody(), [&](const CallExpr *Call) {
           return reads(Call, File);
         });
}

const FunctionDecl *accel::migrate::signalHandler(const Stmt *S,
                                                 const ProgramIndex &Index) {
  const Expr *Handler = nullptr;
  if (const auto *Call = dyn_cast<CallExpr>(S)) {
    const FunctionDecl *F = Call->getDirectCallee();
    if (nameOf(F) == "signal" && (F->isExternC() || isInStd(F)) &&
        Call->getNumArgs() == 2)
      Handler = Call->getArg(1);
  } else if (const auto *Assign = dyn_cast<BinaryOperator>(S);
             Assign && Assign->getOpcode() == BO_Assign) {
    const auto *To = dyn_cast<MemberExpr>(plain(Assign->getLHS()));
    if (To && (nameOf(To->getMemberDecl()) == "sa_handler" ||
               nameOf(To->getMemberDecl()) == "sa_sigaction"))
      Handler = Assign->getRHS();
  }
  // A lambda is converted to a pointer.
  for (const Stmt *Part = Handler; Part;
       Part = Part->children().empty() ? nullptr : *Part->child_begin()) {
    const FunctionDecl *F = nullptr, *Body = nullptr;
    if (const auto *L = dyn_cast<LambdaExpr>(Part))
      F = operatorOf(L);
    else if (const auto *Ref = dyn_cast<DeclRefExpr>(Part))
      F = dyn_cast<FunctionDecl>(Ref->getDecl());
    if (F)
      return Index.isOwn(F) && F->hasBody(Body) ? Body : nullptr;
    if (isa<DeclRefExpr>(Part))
      return nullptr;
  }
  return nullptr;
}

namespace {
/// What handlers of signals set: at another moment on each process.
class SignalFinder : public AstVisitor {
public:
  SignalFinder(const ProgramIndex &Index, std::set<const ValueDecl *> &Found)
      : Index(Index), Found(Found) {}
  bool VisitCallExpr(CallExpr *E) override {
    if (InHandler) {
      const FunctionDecl *F = E->getDirectCallee();
      if (isa<CXXOperatorCallExpr>(E) && E->getNumArgs() == 2 &&
          cast<CXXOperatorCallExpr>(E)->isAssignmentOp())
        set(E->getArg(0));
      else if (const auto *M = dyn_cast<CXXMemberCallExpr>(E);
               M && F && !cast<CXXMethodDecl>(F)->isConst())
        set(M->getImplicitObjectArgument());
    }
    handler(E);
    return true;
  }
  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (InHandler && E->isAssignmentOp())
      set(E->getLHS());
    handler(E);
    return true;
  }
  bool VisitUnaryOperator(UnaryOperator *E) override {
    if (InHandler && E->isIncrementDecrementOp())
      set(E->getSubExpr());
    return true;
  }

private:
  void handler(const Stmt *S) {
    const FunctionDecl *Handler =
        InHandler ? nullptr : signalHandler(S, Index);
    if (!Handler)
      return;
    InHandler = true;
    TraverseStmt(Handler->getBody());
    InHandler = false;
  }
  void set(const Expr *E) {
    if (const ValueDecl *V = writtenIn(E))
      Found.insert(V);
  }
  const ProgramIndex &Index;
  std::set<const ValueDecl *> &Found;
  bool InHandler = false;
};
} // namespace

bool Differing::isSource(const Expr *E) const {
  if (const auto *Call = dyn_cast<CallExpr>(E)) {
    const FunctionDecl *F = Call->getDirectCallee();
    if (!F || agreesAsDraw(Call))
      return false;
    if ((Sources & Clock) && !tellsOfInput(Call, F) &&
        (isPerProcess(F) || tellsOfFile(Call, F, Index)))
      return true;
    if ((Sources & Rank) && tellsRank(F))
      return true;
    if ((Sources & Rank) && nameOf(F) == "getenv" && Call->getNumArgs() == 1)
      if (const auto *Name = dyn_cast<StringLiteral>(bare(Call->getArg(0))))
        return Name->getString() == "RANK" || Name->getString() == "LOCAL_RANK";
  }
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    return (Sources & Clock) &&
           isRandomDevice(Made->getConstructor()->getParent());
  return false;
}

bool Differing::in(const Stmt *S, bool ThroughCalls) const {
  if (!S)
    return false;
  const auto &Variables = ThroughCalls ? Given : Own;
  if (const auto *E = dyn_cast<Expr>(S)) {
    if (isSource(E))
      return true;
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return Variables.count(Ref->getDecl()) != 0 ||
             (isa<FunctionDecl>(Ref->getDecl()) ? false
                                                : Batches.count(Ref->getDecl()) != 0);
    if (const auto *M = dyn_cast<MemberExpr>(E)) {
      if (Variables.count(M->getMemberDecl()))
        return true;
      // Another field of the same object is not meant; the object itself may
      // be one that differs as a whole.
      return in(M->getBase(), ThroughCalls);
    }
    // Its body runs where it is called.
    if (isa<LambdaExpr>(E) || isa<UnaryExprOrTypeTraitExpr>(E))
      return false;
    if (const auto *Call = dyn_cast<CallExpr>(E))
      if (const FunctionDecl *F = Call->getDirectCallee()) {
        if (makesEqual(F) || agreesIn(F) || agreesAsDraw(Call) ||
            (Decides && drawnFromDevice(Call) &&
             Call->getType()->isArithmeticType()))
          return false;
        for (const FunctionDecl *Body : Index.bodiesOf(F))
          if (Returning.count(Body->getCanonicalDecl()))
            return true;
        // A lambda with auto parameters.
        if (const FunctionDecl *Pattern = F->getTemplateInstantiationPattern();
            Pattern && Returning.count(Pattern->getCanonicalDecl()))
          return true;
      }
    if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
      if (!Made->getConstructor()->isCopyOrMoveConstructor() &&
          agreesIn(Made->getConstructor()))
        return false;
  }
  for (const Stmt *Child : S->children())
    if (in(Child, ThroughCalls))
      return true;
  return false;
}

bool Differing::agreesIn(const FunctionDecl *F) const {
  return Decides && isTorch(F);
}

/// `table.find(key)`, `list.begin()`: an iterator, and the container stays as it is.
static bool looksUp(const CXXMethodDecl *M) {
  static const llvm::StringSet<> Names = {
      "begin", "end",         "rbegin",      "rend",
      "find",  "lower_bound", "upper_bound", "equal_range"};
  return isInStd(M) && Names.count(nameOf(M));
}

namespace accel::migrate {

/// One pass over a function; repeated until nothing is added.
class DifferingWalk : public AstPathVisitor {
public:
  DifferingWalk(Differing &D, bool ThroughCalls)
      : D(D), ThroughCalls(ThroughCalls),
        Variables(ThroughCalls ? D.Given : D.Own) {}

  bool Changed = false;
  const FunctionDecl *Function = nullptr;

  bool VisitVarDecl(VarDecl *V) override {
    if (V->getInit() && D.in(V->getInit(), ThroughCalls) &&
        (Under || !D.agreesAsName(V)))
      add(V, V->getInit());
    if (const auto *Parts = dyn_cast<DecompositionDecl>(V);
        Parts && Variables.count(V))
      for (const BindingDecl *B : Parts->bindings())
        add(B, V->getInit());
    return true;
  }

  bool TraverseStmt(Stmt *S) override {
    if (!S || !(isLoop(S) || isa<IfStmt, SwitchStmt>(S)))
      return AstPathVisitor::TraverseStmt(S);
    if (auto *Range = dyn_cast<CXXForRangeStmt>(S))
      return traverseRange(Range);
    // What is assigned under a condition that differs comes to differ; so does
    // what a loop assigns that some processes leave early.
    const unsigned Before = Under;
    Under += splits(conditionOf(S), S) || isLeftEarly(S);
    const bool Result = AstPathVisitor::TraverseStmt(S);
    Under = Before;
    return Result;
  }
  bool traverseRange(CXXForRangeStmt *S) {
    if ((D.Sources & Differing::Part) && loaderOf(S->getRangeInit()->getType())) {
      Changed |= D.Batches.insert(S->getLoopVariable()).second;
      if (const auto *Parts = dyn_cast<DecompositionDecl>(S->getLoopVariable()))
        for (const BindingDecl *B : Parts->bindings())
          Changed |= D.Batches.insert(B).second;
    }
    const bool Apart = splits(S->getRangeInit(), S);
    if (D.in(S->getRangeInit(), ThroughCalls))
      add(S->getLoopVariable(), nullptr);
    TraverseStmt(S->getInit());
    TraverseStmt(S->getRangeInit());
    const unsigned Before = Under;
    Under += Apart || isLeftEarly(S);
    const bool Result = TraverseStmt(S->getBody());
    Under = Before;
    return Result;
  }

  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (E->isAssignmentOp() && (Under || D.in(E->getRHS(), ThroughCalls)))
      add(writtenIn(E->getLHS()), E->getRHS());
    return true;
  }
  bool VisitUnaryOperator(UnaryOperator *E) override {
    if (E->isIncrementDecrementOp() && Under)
      add(writtenIn(E->getSubExpr()), nullptr);
    return true;
  }

  bool VisitReturnStmt(ReturnStmt *S) override {
    const FunctionDecl *From = Lambdas.empty() ? Function : Lambdas.back();
    if (!ThroughCalls && From && S->getRetValue() &&
        (Under || D.in(S->getRetValue(), false)))
      Changed |= D.Returning.insert(From->getCanonicalDecl()).second;
    return true;
  }
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    Lambdas.push_back(operatorOf(L));
    const bool Result = AstPathVisitor::TraverseLambdaExpr(L);
    Lambdas.pop_back();
    return Result;
  }

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
      if (O->isAssignmentOp()) {
        if (Under ||
            (!D.agreesIn(F) && D.in(O->getArg(1), ThroughCalls)))
          add(writtenIn(O->getArg(0)), O->getArg(1));
        else if (sharing(O->getArg(1)))
          share(O->getArg(0));
      } else if (O->getOperator() == OO_LessLess &&
                 (Under || D.in(O->getArg(1), ThroughCalls))) {
        if (const ValueDecl *To = writtenIn(O->getArg(0));
            To && isStringStream(recordOf(To->getType())))
          add(To, nullptr);
      }
      return true;
    }
    if (isAcceleratorMethod(F))
      return true;
    // clock_gettime(CLOCK_MONOTONIC, &t)
    if ((D.Sources & Differing::Clock) && isPerProcess(F) &&
        !tellsOfInput(E, F))
      for (const Expr *Arg : E->arguments())
        if (Arg->getType()->isPointerType())
          add(writtenIn(Arg), nullptr);
    bool Any = Under != 0;
    if (!D.agreesIn(F))
      for (const Expr *Arg : E->arguments())
        Any |= D.in(Arg, ThroughCalls);
    if (!Any)
      return true;
    const auto Bodies = D.Index.ownBodiesOf(F);
    for (const FunctionDecl *Body : Bodies) {
      for (unsigned I = 0; I < Body->getNumParams() && I < E->getNumArgs(); ++I) {
        const ParmVarDecl *P = Body->getParamDecl(I);
        if (ThroughCalls && D.in(E->getArg(I), true))
          add(P, E->getArg(I));
        const QualType T = P->getType();
        if (T->isReferenceType() && !T->getPointeeType().isConstQualified() &&
            Variables.count(P))
          add(writtenIn(E->getArg(I)), nullptr);
      }
    }
    if (!Bodies.empty())
      return true;
    if (const Expr *Buffer = filledBy(E, F))
      add(writtenIn(Buffer), nullptr);
    // list.push_back(x), std::getline(in, line)
    if (const auto *M = dyn_cast<CXXMemberCallExpr>(E)) {
      if (const CXXMethodDecl *Method = M->getMethodDecl();
          Method && !Method->isConst() && !Method->isStatic() &&
          !looksUp(Method))
        add(writtenIn(M->getImplicitObjectArgument()), nullptr);
    }
    return true;
  }

  /// Whether processes take different ways at a condition.
  bool splits(const Expr *Condition, const Stmt *S) const {
    return D.in(Condition, ThroughCalls) &&
           !(D.Decides && D.mustAgree(Condition, S, Function));
  }

  /// Whether some processes leave the loop (or, with `Inner`, only the function)
  /// from inside of `S` and others do not.
  bool leaves(const Stmt *S, bool Beneath, bool Inner) const {
    if (!S || isa<LambdaExpr>(S))
      return false;
    if (Beneath && (isa<ReturnStmt>(S) ||
                    (!Inner && isa<BreakStmt, ContinueStmt>(S))))
      return true;
    if (const auto *If = dyn_cast<IfStmt>(S))
      Beneath |= splits(If->getCond(), If);
    if (const auto *Switch = dyn_cast<SwitchStmt>(S))
      Beneath |= splits(Switch->getCond(), Switch);
    Inner |= isLoop(S);
    for (const Stmt *Child : S->children())
      if (leaves(Child, Beneath, Inner))
        return true;
    return false;
  }
  /// Whether `S` is a loop that some processes leave early.
  bool isLeftEarly(const Stmt *S) const {
    return isLoop(S) && leaves(bodyOf(S), /*Beneath=*/false, /*Inner=*/false);
  }

  /// A function's body. Who has left main is gone, and changes nothing.
  void function(const FunctionDecl *F) {
    Function = F;
    Under = !F->isMain() && leaves(F->getBody(), false, /*Inner=*/true);
    TraverseStmt(F->getBody());
    Under = 0;
  }

private:
  /// The same everywhere though it was made from something that differs.
  static bool sharing(const Expr *E) {
    const FunctionDecl *F = calleeOf(plain(E));
    return F && makesEqual(F);
  }
  void share(const Expr *To) {
    To = plain(To);
    if (const FunctionDecl *F = calleeOf(To); nameOf(F) == "tie") {
      for (const Expr *Arg : cast<CallExpr>(To)->arguments())
        share(Arg);
      return;
    }
    if (const ValueDecl *V = writtenIn(To))
      Changed |= D.Shared.insert(V).second;
  }

  void add(const ValueDecl *V, const Expr *From) {
    if (!V || isa<FunctionDecl>(V) || keepsEqual(V->getType()))
      return;
    // A variable that is gathered later on is taken for what it is then.
    if (D.Shared.count(V) && (D.Sources & Differing::Part))
      return;
    Changed |= Variables.insert(V).second;
    if (!ThroughCalls)
      D.Given.insert(V);
  }

  Differing &D;
  const bool ThroughCalls;
  std::set<const ValueDecl *> &Variables;
  unsigned Under = 0;
  std::vector<const FunctionDecl *> Lambdas;
};

} // namespace accel::migrate

Differing::Differing(const ProgramIndex &Index, unsigned Sources, bool Decides)
    : Index(Index), Sources(Sources), Decides(Decides), Silent(Index) {
  if (Decides)
    Draws = keptDraws(Index);
  if (Sources & Clock) {
    SignalFinder Signals(Index, Own);
    for (const FunctionDecl *F : Index.Functions) {
      Signals.TraverseStmt(F->getBody());
      if (const auto *C = dyn_cast<CXXConstructorDecl>(F))
        for (const CXXCtorInitializer *Init : C->inits())
          Signals.TraverseStmt(Init->getInit());
    }
    for (const FieldDecl *F : Index.Fields)
      Signals.TraverseStmt(F->getInClassInitializer());
    for (const VarDecl *V : Index.Globals)
      Signals.TraverseStmt(const_cast<Expr *>(V->getInit()));
    Given.insert(Own.begin(), Own.end());
  }
  for (const bool ThroughCalls : {false, true})
    for (bool Changed = true; Changed;) {
      Changed = false;
      DifferingWalk Walk(*this, ThroughCalls);
      for (const VarDecl *V : Index.Globals)
        Walk.TraverseDecl(const_cast<VarDecl *>(V));
      for (const FieldDecl *F : Index.Fields)
        if (F->hasInClassInitializer() && !keepsEqual(F->getType()) &&
            in(F->getInClassInitializer()))
          Changed |= int(Own.insert(F).second) | int(Given.insert(F).second);
      for (const FunctionDecl *F : Index.Functions) {
        if (const auto *C = dyn_cast<CXXConstructorDecl>(F))
          for (const CXXCtorInitializer *Init : C->inits())
            if (Init->isAnyMemberInitializer() &&
                !keepsEqual(Init->getAnyMember()->getType()) &&
                in(Init->getInit(), ThroughCalls)) {
              auto &Set = ThroughCalls ? Given : Own;
              Changed |= Set.insert(Init->getAnyMember()).second;
              Given.insert(Init->getAnyMember());
            }
        if (Index.isReached(F))
          Walk.function(F);
      }
      Changed |= Walk.Changed;
    }
}
