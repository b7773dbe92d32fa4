//===- OutputFacts.cpp - Windows, images, plots, commands -----------------===//
//
// Calls whose only purpose is outside of the program: the main process makes
// them.
//
//===----------------------------------------------------------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/Quiet.h"
#include "Code/TorchTypes.h"

#include "clang/Lex/Lexer.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// A library's function that shows, plots or writes something. One whose body
/// is seen and may be changed is changed there.
static bool isOutput(const CallExpr *Call, const FunctionDecl *F,
                     const ProgramIndex &Index, SourceText &Text) {
  if (!F->getIdentifier() || isTorch(F))
    return false;
  if (Index.OfMainProcess.count(F->getCanonicalDecl()))
    return true;
  const FunctionDecl *Body = nullptr;
  if (Index.isOwn(F) &&
      (!F->hasBody(Body) || Text.mayEdit(Body->getLocation())))
    return false;
  const llvm::StringRef Name = F->getName();
  const std::string Qualified = qualifiedName(F);
  const llvm::StringRef Full(Qualified);
  static const llvm::StringSet<> Cv = {
      "imwrite",      "imwritemulti",      "imshow",       "namedWindow",
      "waitKey",      "waitKeyEx",         "pollKey",      "destroyAllWindows",
      "destroyWindow", "moveWindow",       "resizeWindow", "setWindowTitle",
      "startWindowThread"};
  if (Full.starts_with("cv::") && Cv.count(Name))
    return true;
  if (Full.starts_with("matplotlibcpp::"))
    return true;
  // Matplot++: what has no result that the next call needs.
  static const llvm::StringSet<> Plots = {"show", "save", "draw", "wait"};
  if (Full.starts_with("matplot::") && Plots.count(Name))
    return true;
  static const llvm::StringSet<> Files = {
      "remove",  "remove_all",   "rename",        "copy",
      "copy_file", "resize_file", "create_symlink", "permissions"};
  if (Full.contains("filesystem::") && Files.count(Name))
    return true;
  if (F->isExternC() || isInStd(F)) {
    static const llvm::StringSet<> C = {"system",  "remove",  "rename",
                                        "unlink",  "rmdir",   "getchar",
                                        "symlink", "link",    "truncate"};
    if (C.count(Name) && !isa<CXXMethodDecl>(F))
      return !isInStd(F) || F->isExternC() || F->getNumParams() < 3;
    if (isInStd(F))
      return false;
  }
  // save_image("x.png", …), stbi_write_png(…): told by its name and a path. What
  // a library writes into a file that the program has opened is no matter: the
  // file is the main process's.
  if (isa<CXXMethodDecl>(F))
    return false;
  auto MayBePath = [&](const ParmVarDecl *P, unsigned Index) {
    const QualType T = P->getType().getNonReferenceType();
    const CXXRecordDecl *D = T->getAsCXXRecordDecl();
    const auto *Pointee =
        T->isPointerType() ? T->getPointeeType()->getAs<BuiltinType>() : nullptr;
    // Rows of pixels are unsigned.
    const bool IsText = Pointee && (Pointee->getKind() == BuiltinType::Char_S ||
                                    Pointee->getKind() == BuiltinType::Char_U);
    if (!IsText && !((nameOf(D) == "basic_string" || nameOf(D) == "path" ||
                      nameOf(D) == "basic_string_view") &&
                     isInStd(D)))
      return false;
    // PNG_LIBPNG_VER_STRING: a text of the library's own.
    return Index >= Call->getNumArgs() ||
           !Text.SM.isInSystemHeader(
               Text.SM.getSpellingLoc(Call->getArg(Index)->getBeginLoc()));
  };
  const std::string Lower = Name.lower();
  for (const llvm::StringRef Word : {"save", "write", "export", "dump"})
    if (llvm::StringRef(Lower).contains(Word))
      for (unsigned I = 0; I < F->getNumParams(); ++I)
        if (MayBePath(F->getParamDecl(I), I))
          return true;
  return false;
}

/// Whether a statement or an expression changes something, apart from its
/// parts.
static bool leavesTrace(const Stmt *S, const ProgramIndex &Index,
                        std::set<const FunctionDecl *> &Seen, bool InFunction) {
  auto Leaves = [&](const FunctionDecl *F) {
    return llvm::any_of(Index.ownBodiesOf(F), [&](const FunctionDecl *Body) {
      return Seen.insert(Body).second &&
             !leavesNoTrace(Body->getBody(), Index, Seen, true);
    });
  };
  auto Local = [&](const Expr *E) {
    E = plain(E);
    while (true) {
      if (const auto *M = dyn_cast<MemberExpr>(E))
        E = plain(M->getBase());
      else if (const auto *A = dyn_cast<ArraySubscriptExpr>(E))
        E = plain(A->getBase());
      else if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E))
        E = plain(O->getArg(0));
      else
        break;
    }
    const auto *Ref = dyn_cast<DeclRefExpr>(E);
    const auto *V = Ref ? dyn_cast<VarDecl>(Ref->getDecl()) : nullptr;
    return InFunction && V && V->hasLocalStorage() &&
           !V->getType()->isReferenceType();
  };
  if (const auto *B = dyn_cast<BinaryOperator>(S))
    return B->isAssignmentOp() && !Local(B->getLHS());
  if (const auto *U = dyn_cast<UnaryOperator>(S))
    return U->isIncrementDecrementOp() && !Local(U->getSubExpr());
  if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
    return Leaves(Made->getConstructor());
  const auto *Call = dyn_cast<CallExpr>(S);
  if (!Call)
    return isa<LambdaExpr>(S);
  const FunctionDecl *F = Call->getDirectCallee();
  if (!F || drawsOnHost(Call) || seeds(F))
    return true;
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Call))
    if ((O->isAssignmentOp() && !Local(O->getArg(0))) ||
        (O->getOperator() == OO_Call && moduleOf(O->getArg(0)->getType())))
      return true;
  if (const auto *M = dyn_cast<CXXMemberCallExpr>(Call)) {
    const Expr *Object = M->getImplicitObjectArgument();
    const QualType T = Object->getType();
    if (moduleOf(T) || optimizerOf(T) || schedulerOf(T) || loaderOf(T))
      return true;
    const CXXMethodDecl *Method = M->getMethodDecl();
    if (Method && !Method->isConst() && !isTensor(T) && !Index.isOwn(Method) &&
        !Local(Object) && !Object->isPRValue())
      return true;
  }
  static const llvm::StringSet<> Random = {
      "rand",       "randn",        "randint", "randperm",  "rand_like",
      "randn_like", "randint_like", "normal",  "bernoulli", "multinomial",
      "dropout",    "poisson",      "backward"};
  return (isTorch(F) && (Random.count(nameOf(F)) || namesInPlace(nameOf(F)))) ||
         Leaves(F);
}

bool accel::migrate::leavesNoTrace(const Stmt *S, const ProgramIndex &Index,
                                   std::set<const FunctionDecl *> &Seen,
                                   bool InFunction) {
  return !existsIn(S, [&](const Stmt *Part) {
    return leavesTrace(Part, Index, Seen, InFunction);
  });
}

/// A command, or its beginning, that is told by its name.
static bool takesFilesAway(const Expr *Command) {
  return anyIn<StringLiteral>(Command, [](const StringLiteral *Part) {
    const llvm::StringRef Text =
        Part->getCharByteWidth() == 1 ? Part->getString() : "";
    return Text.starts_with("rm ") || Text.contains(" rm ") ||
           Text.starts_with("mv ") || Text.contains(" mv ");
  });
}

/// Whether a function takes away, or changes, the file that its first argument names.
static bool takesFirst(llvm::StringRef Name) {
  static const llvm::StringSet<> Names = {"remove",      "unlink",
                                          "rename",      "resize_file",
                                          "truncate",    "remove_all"};
  return Names.count(Name) != 0;
}

/// Whether a function makes the file that its second argument names, in place of
/// another one.
static bool makesSecond(llvm::StringRef Name) {
  static const llvm::StringSet<> Names = {"rename",  "copy", "copy_file",
                                          "symlink", "link", "create_symlink"};
  return Names.count(Name) != 0;
}

/// The files that a statement of the main process makes or takes away.
void OutputFacts::moves(const CallExpr *E, const Stmt *Statement,
                        bool HasBlock) {
  const FunctionDecl *F = E->getDirectCallee();
  if (!F || !F->getIdentifier() || !(F->isExternC() || isInStd(F)))
    return;
  auto Add = [&](const Expr *Path, bool Below, bool TakesAway) {
    FileUse &Use = addUse(E, Path);
    Use.Below = Below;
    Use.Moved = Statement;
    Use.Here = here();
    Use.TakesAway = TakesAway;
    Use.HasBlock = HasBlock;
  };
  const llvm::StringRef Name = F->getName();
  const unsigned Args = E->getNumArgs();
  if (Args && takesFirst(Name))
    Add(E->getArg(0), Name == "remove_all" || Name == "rename", true);
  if (Args > 1 && makesSecond(Name))
    Add(E->getArg(1), Name != "copy_file", true);
  if (Args && Name == "system")
    Add(nullptr, false, takesFilesAway(E->getArg(0)));
}

static bool isErrno(const Expr *E) {
  const auto *Read = dyn_cast<UnaryOperator>(plain(E));
  const auto *Call =
      Read ? dyn_cast<CallExpr>(plain(Read->getSubExpr())) : nullptr;
  return Call && nameOf(Call->getDirectCallee()) == "__errno_location";
}

/// Whether errno is looked at outside of an expression, but for its text and to print it:
/// the main process alone prints, which has its own.
static bool asksForError(const Stmt *S, const Expr *Without) {
  if (!S || S == Without)
    return false;
  if (const auto *Call = dyn_cast<CallExpr>(S))
    if (const FunctionDecl *F = Call->getDirectCallee()) {
      const auto *Operator = dyn_cast<CXXOperatorCallExpr>(S);
      const bool Prints =
          (Operator && Operator->getOperator() == OO_LessLess && isInStd(F)) ||
          nameOf(F) == "printf" || nameOf(F) == "fprintf";
      if (Prints)
        return llvm::any_of(Call->arguments(), [&](const Expr *Arg) {
          return !isErrno(Arg) && asksForError(Arg, Without);
        });
      if (nameOf(F) == "__errno_location")
        return true;
      if (nameOf(F) == "strerror")
        return false;
    }
  return llvm::any_of(S->children(), [&](const Stmt *Child) {
    return asksForError(Child, Without);
  });
}

/// A call, or `there || !made` around it: what stands before may ask for the file that
/// it makes. Null where more is done there than to ask.
const Expr *OutputFacts::conditionAround(const CallExpr *E) const {
  const Expr *All = E;
  const Stmt *Child = E;
  std::set<const FunctionDecl *> Seen;
  for (const Stmt *S : llvm::reverse(llvm::ArrayRef(Path).drop_back())) {
    const auto *U = dyn_cast<UnaryOperator>(S);
    const auto *B = dyn_cast<BinaryOperator>(S);
    if (B && B->isComparisonOp() && All == E) {
      // mkdir(folder, 0755) != 0
    } else if (B && B->isLogicalOp()) {
      const Expr *Other = Child == B->getLHS() ? B->getRHS() : B->getLHS();
      if (!leavesNoTrace(Other, Index, Seen, /*InFunction=*/false) ||
          Cuts.isReadIn(Other))
        return nullptr;
      All = B;
    } else if (!(U && U->getOpcode() == UO_LNot) &&
               !isa<ParenExpr, ImplicitCastExpr, ExprWithCleanups>(S)) {
      break;
    }
    Child = S;
  }
  return All;
}

/// Whether `E` is all that `S` evaluates before anything else is done.
static bool isAllOf(const Stmt *S, const Expr *E) {
  const Expr *Whole = nullptr;
  if (const auto *If = dyn_cast<IfStmt>(S))
    Whole = If->hasInitStorage() || If->hasVarStorage() ? nullptr : If->getCond();
  else if (const auto *Return = dyn_cast<ReturnStmt>(S))
    Whole = Return->getRetValue();
  else if (const auto *D = dyn_cast<DeclStmt>(S); D && D->isSingleDecl()) {
    if (const auto *V = dyn_cast<VarDecl>(D->getSingleDecl()))
      Whole = V->getInit();
  } else if (const auto *B = dyn_cast<BinaryOperator>(S); B && B->isAssignmentOp())
    Whole = B->getRHS();
  const auto *Compared = Whole ? dyn_cast<BinaryOperator>(plain(Whole)) : nullptr;
  const auto IsIt = [E](const Expr *Part) { return plain(Part) == plain(E); };
  return Whole && (IsIt(Whole) || (Compared && Compared->isComparisonOp() &&
                                   (IsIt(Compared->getLHS()) || IsIt(Compared->getRHS()))));
}

/// Whether a function writes into what it is given: a std::error_code.
static bool writesArguments(const FunctionDecl *F) {
  return llvm::any_of(F->parameters(), [](const ParmVarDecl *P) {
    return isWritableReference(P->getType());
  });
}

/// `if (system("mkdir out") != 0)`: the main process makes the call, and all are told
/// what it returned. Not where not all come to, or where others may still read what
/// the call takes away and cannot wait before it.
bool OutputFacts::answer(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  if ((!E->getType()->isBooleanType() && !E->getType()->isSpecificBuiltinType(BuiltinType::Int)) ||
      inSamples() || Index.BeforeMain.count(Function) || !F->getIdentifier() ||
      isBodyOfItsOwn() || !ByAll(Path, Function))
    return false;
  const bool Moves = takesFirst(F->getName()) || makesSecond(F->getName()) ||
                     (F->getName() == "system" && takesFilesAway(E->getArg(0)));
  std::set<const FunctionDecl *> Seen;
  if (llvm::any_of(E->arguments(), [&](const Expr *Arg) {
        return Cuts.isReadIn(Arg) ||
               !leavesNoTrace(Arg, Index, Seen, /*InFunction=*/false);
      }))
    return false;
  const Expr *All = conditionAround(E);
  const Stmt *Statement = nullptr;
  block(&Statement);
  if (Moves && (!Statement || !All || !isAllOf(Statement, All) || writesArguments(F) ||
                !Text.range(Statement->getSourceRange()) || !Text.before(Statement)))
    return false;
  // The errno of the others says nothing.
  const Stmt *Around = Statement && isa<IfStmt>(Statement) ? Statement
                       : Function                          ? Function->getBody()
                                                           : nullptr;
  if (!All || ((Moves || F->getName() == "mkdir") && asksForError(Around, All)))
    return false;
  const bool IsTruth = All != E || E->getType()->isBooleanType();
  const std::optional<TextRange> R = editable(All->getSourceRange());
  // What is asked there is asked by the main process, which waits for nobody.
  if (All != E)
    llvm::erase_if(Files, [&](const FileUse &Use) {
      return isWithin(Use.Use->getExprLoc(), All, Text.SM);
    });
  if (R)
    edit(EditKind::AnswerOfMain, *R, IsTruth ? "false" : "0");
  if (R && Moves)
    moves(E, Statement, /*HasBlock=*/true);
  return R.has_value();
}

/// The innermost loop over the files of a folder that the path's end stands in.
const CXXForRangeStmt *OutputFacts::folderLoop() const {
  for (const Stmt *S : llvm::reverse(Path)) {
    if (isa<LambdaExpr>(S))
      return nullptr;
    const auto *Loop = dyn_cast<CXXForRangeStmt>(S);
    const CXXRecordDecl *D =
        Loop ? recordOf(Loop->getRangeInit()->getType()) : nullptr;
    if (D && isInStd(D) && nameOf(D).ends_with("directory_iterator"))
      return Loop;
  }
  return nullptr;
}

/// Whether a loop in a block does nothing but the call at the path's end, perhaps
/// under conditions that change nothing.
bool OutputFacts::doesNothingElse(const CXXForRangeStmt *Loop) const {
  const auto At = llvm::find(Path, Loop);
  if (At == Path.begin() || !isa<CompoundStmt>(*(At - 1)))
    return false;
  std::set<const FunctionDecl *> Seen;
  for (const Stmt *S : llvm::make_range(At + 1, Path.end() - 1)) {
    if (const auto *Block = dyn_cast<CompoundStmt>(S)) {
      if (Block->size() != 1)
        return false;
    } else if (const auto *If = dyn_cast<IfStmt>(S)) {
      if (If->getElse() || If->hasInitStorage() || If->hasVarStorage() ||
          !leavesNoTrace(If->getCond(), Index, Seen, /*InFunction=*/false) ||
          Cuts.isReadIn(If->getCond()))
        return false;
    } else if (!isa<ExprWithCleanups, CastExpr>(S)) {
      return false;
    }
  }
  return true;
}

/// The statement is made by the main process only.
void OutputFacts::guard(const CallExpr *E, const std::string &What) {
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  const Stmt *Statement = statementOf(E);
  const bool HasBlock = Statement != nullptr;
  if (!Statement && isBodyForCondition())
    Statement = E;
  if (!Statement && answer(E))
    return;
  if (!Statement)
    return say("ACL0226", E->getExprLoc(),
               What + ", which the main process alone should do, and its "
                      "result is used (or it stands where no condition can be "
                      "put before it)",
               "Make the call a statement of its own, in braces, under `if "
               "(accelerator.is_main_process())`.");
  // Another process, which goes through the folder meanwhile, would find fewer
  // files, and wait less often.
  const FunctionDecl *F = E->getDirectCallee();
  if (const CXXForRangeStmt *Loop = folderLoop();
      Loop && takesFirst(nameOf(F))) {
    if (!doesNothingElse(Loop))
      return say("ACL0226", E->getExprLoc(),
                 What + ", which the main process alone should do, in a loop "
                        "over the files of a folder that does more than that",
                 "Do it in a loop of its own.");
    llvm::erase_if(Files, [&](const FileUse &Use) {
      return isWithin(Use.Use->getExprLoc(), Loop, Text.SM);
    });
    Statement = Loop;
  }
  const std::optional<TextRange> R = editable(Statement->getSourceRange());
  if (!R)
    return;
  GuardFact Fact;
  Fact.In = here();
  Fact.Range = *R;
  if (!inSamples() && !Index.BeforeMain.count(Function))
    moves(E, Statement, HasBlock || isa<CXXForRangeStmt>(Statement));
  // Then all processes calculate the arguments.
  std::set<const FunctionDecl *> Seen;
  const auto Does = llvm::find_if(E->arguments(), [&](const Expr *Arg) {
    return !leavesNoTrace(Arg, Index, Seen, /*InFunction=*/false);
  });
  const bool DoesMore = Does != E->arguments().end();
  const bool Meets =
      DoesMore || llvm::any_of(E->arguments(), [&](const Expr *Arg) {
        return Cuts.isReadIn(Arg);
      });
  // `{…}` has no type of its own.
  const bool Deducible =
      llvm::none_of(E->arguments(), [&](const Expr *Arg) {
        return !isa<CXXDefaultArgExpr>(Arg) &&
               Lexer::getSourceText(
                   CharSourceRange::getTokenRange(Arg->getSourceRange()),
                   Text.SM, Context.getLangOpts())
                   .starts_with("{");
      });
  if (Meets && Deducible && Statement->getBeginLoc() == E->getBeginLoc()) {
    const SourceRange Callee = E->getCallee()->getSourceRange();
    const SourceLocation Behind = Text.behind(Callee.getEnd());
    Token Next;
    if (Behind.isValid() &&
        !Lexer::getRawToken(Behind, Next, Text.SM, Context.getLangOpts(),
                            /*IgnoreWhiteSpace=*/true) &&
        Next.is(tok::l_paren)) {
      Fact.Callee = Text.range(Callee);
      Fact.Open = Text.range({Next.getLocation(), Next.getLocation()});
    }
  }
  if (Meets && (!Fact.Callee || !Fact.Open))
    return say(
        "ACL0226", DoesMore ? (*Does)->getExprLoc() : E->getExprLoc(),
        What + ", which the main process alone should do, and an argument " +
            (DoesMore ? "does more than to be read"
                      : "is calculated from a batch, for which all are needed"),
        "Calculate the argument in a statement before.");
  if (Meets)
    for (const Expr *Arg : E->arguments())
      if (isTensor(Arg->getType()) && Cuts.in(Arg))
        if (std::optional<TextRange> Tensor =
                editable(plain(Arg)->getSourceRange()))
          Fact.Tensors.push_back(*Tensor);
  Program.Guards.push_back(std::move(Fact));
}

void OutputFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                            llvm::StringRef Called) {
  if (waitsForKey(E) && statementOf(E))
    return guard(E, "a key is waited for");
  if (tellsFolderMade(E) && isResultUsed(E) && Text.mayEdit(E->getExprLoc()) &&
      !answer(E))
    return say("ACL0226", E->getExprLoc(),
               "'" + Called.str() +
                   "' is called, which the main process alone should do, and "
                   "its result is used where the others cannot be told",
               "Make the folder in a statement of its own, and ask for it with "
               "std::filesystem::is_directory.");
  if (!isOutput(E, F, Index, Text))
    return;
  const std::string Name = Called.str();
  if (Name == "getchar" && !statementOf(E))
    return; // Read for all (InputFacts.cpp).
  // if (cv::waitKey(1) == 27) break;
  if (llvm::StringRef(Name).starts_with("waitKey") && !statementOf(E)) {
    if (!Text.mayEdit(E->getExprLoc()))
      return;
    if (inSamples())
      return say("ACL0226", E->getExprLoc(),
                    "'" + Name + "' is called where the other processes cannot "
                                 "be told what it returned",
                    "Call it in the training loop.");
    edit(EditKind::KeyOfMain, E->getSourceRange(), "-1");
    return;
  }
  guard(E, "'" + Name + "' is called");
}
