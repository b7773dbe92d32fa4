//===- FileFacts.cpp - What is written to files ---------------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/Quiet.h"
#include "Code/TorchTypes.h"

#include "clang/Lex/Lexer.h"

#include <fcntl.h>

using namespace accel::migrate;
using namespace clang;

/// How a file is opened: the literal, or where a function is given the mode
/// ("rb" for all files that it reads), the one that all its callers give.
std::string FileFacts::openMode(const Expr *Mode) const {
  if (const auto *Literal = dyn_cast<StringLiteral>(bare(Mode)))
    return Literal->getString().str();
  const auto *Parameter = dyn_cast_or_null<ParmVarDecl>(variableOf(Mode));
  const auto *Method = dyn_cast_or_null<CXXMethodDecl>(Function);
  if (!Parameter || Parameter->getDeclContext() != Function ||
      (Method && Method->isInstance()))
    return "";
  const CallSites Calls(Index);
  if (!Calls.isOnlyCalled(Function))
    return "";
  std::string Result;
  for (const CallSites::Site &Site : Calls.of(Function)) {
    const unsigned I = Parameter->getFunctionScopeIndex();
    const auto *Literal = I < Site.Args.size()
                              ? dyn_cast<StringLiteral>(bare(Site.Args[I]))
                              : nullptr;
    if (!Literal || (!Result.empty() && Result != Literal->getString()))
      return "";
    Result = Literal->getString().str();
  }
  return Result;
}

static bool isPath(QualType T) {
  T = T.getNonReferenceType();
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  if (D)
    return isInStd(D) && (nameOf(D) == "basic_string" || nameOf(D) == "path");
  return T->isPointerType() || T->isArrayType();
}

bool accel::migrate::isFileStream(const CXXRecordDecl *D) {
  return (nameOf(D) == "basic_ofstream" || nameOf(D) == "basic_fstream" ||
          nameOf(D) == "basic_ifstream") &&
         isInStd(D);
}

/// The stream that a container makes of what it is given: of std::ofstream for
/// std::vector<std::ofstream>::emplace_back. Null for other functions.
static const CXXRecordDecl *streamMadeBy(const CXXMethodDecl *M) {
  if (!isInStd(M) || !nameOf(M).contains("emplace"))
    return nullptr;
  llvm::SmallVector<QualType, 4> Types = typeArgumentsOf(M->getParent());
  // std::variant's emplace<std::ofstream>
  llvm::append_range(Types, typeArgumentsOf(M));
  for (QualType T : Types)
    if (const CXXRecordDecl *D = recordOf(T); isFileStream(D))
      return D;
  return nullptr;
}

/// torch::save(net, path).
static bool savesToPath(const CallExpr *E) {
  return E->getNumArgs() >= 2 && isPath(plain(E->getArg(1))->getType());
}

/// A stream is a file's of its own (judged where it is opened), or memory.
static bool isOutputStream(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return D && isInStd(D) && isOrDerives(D, "std::basic_ostream");
}

/// Whether the statement behind `S` saves, too: all wait behind that one.
static bool isFollowedBySave(const CompoundStmt *Block, const Stmt *S) {
  const auto *It = llvm::find(Block->body(), S);
  if (It == Block->body_end() || ++It == Block->body_end())
    return false;
  const auto *Call = dyn_cast_or_null<CallExpr>(plain(dyn_cast<Expr>(*It)));
  const FunctionDecl *F = calleeOf(Call);
  return nameOf(F) == "save" && !isa<CXXMethodDecl>(F) && isTorch(F) &&
         savesToPath(Call);
}

void FileFacts::save(const CallExpr *E) {
  const bool ToStream =
      E->getNumArgs() >= 2 && isOutputStream(plain(E->getArg(1))->getType());
  if (!savesToPath(E) && !ToStream)
    return;
  const std::optional<TextRange> Callee = calledName(E->getCallee());
  if (!Callee)
    return;
  SaveFact Fact;
  Fact.In = here();
  Fact.Callee = *Callee;
  Fact.ToStream = ToStream;
  if (ToStream) {
    Program.Saves.push_back(std::move(Fact));
    return;
  }
  addUse(E, E->getArg(1)).IsSave = true;
  // A load later on, in the text of this function or in another one, which may
  // be called later.
  const SourceManager &SM = Text.SM;
  Fact.ReadLater = llvm::any_of(Index.Functions, [&](const FunctionDecl *F) {
    return anyIn<CallExpr>(F->getBody(), [&](const CallExpr *Call) {
      const FunctionDecl *Called = Call->getDirectCallee();
      return nameOf(Called) == "load" && isTorch(Called) &&
             (F != Function || inLoop() ||
              SM.isBeforeInTranslationUnit(E->getExprLoc(),
                                           Call->getExprLoc()));
    });
  });
  if (Fact.ReadLater) {
    const Stmt *Statement = nullptr;
    const CompoundStmt *Block = block(&Statement);
    std::optional<LinePoint> After;
    if (const auto *S = dyn_cast_or_null<Expr>(Statement);
        S && plain(S) == E) {
      After = Text.after(S);
      Fact.ReadLater = !isFollowedBySave(Block, S);
    }
    // if (better) torch::save(net, path);
    if (!After && isBodyOfItsOwn())
      if (std::optional<BodyPoint> Body = Text.bodyTop(E);
          Body && Body->Top.At.Offset + Body->Top.At.Length == Callee->Offset)
        Fact.Braces = std::move(Body);
    if (!After && !Fact.Braces)
      return say("ACL0226", E->getExprLoc(),
                    "the file that is saved here is read again, and there is "
                    "no place behind it where the processes could wait",
                    "Make the call of torch::save a statement of its own, in "
                    "braces.");
    if (After)
      Fact.After = *After;
  }
  Program.Saves.push_back(std::move(Fact));
}

/// `archive.save_to(path)` becomes `accelerator.save(archive, path)`: parameters that
/// were written into it may be in parts.
void FileFacts::saveArchive(const CXXMemberCallExpr *E) {
  const Expr *To = E->getArg(0);
  const bool IsFile = isPath(plain(To)->getType());
  if (!IsFile && !isOutputStream(plain(To)->getType()))
    return;
  const auto [Object, IsPointer] = objectOf(E);
  const std::optional<TextRange> From = editable(Object->getSourceRange());
  const std::optional<TextRange> Given = Text.range(written(To));
  if (!From || !Given || Index.BeforeMain.count(Function) ||
      From->File != Given->File || From->Use ||
      From->Offset + From->Length > Given->Offset) {
    if (IsFile)
      file(E, To, /*Writes=*/true);
    return;
  }
  if (IsFile)
    addUse(E, To).Writes = true;
  const unsigned End = From->Offset + From->Length;
  Program.Archives.push_back({here(),
                              *From,
                              {From->File, End, Given->Offset - End},
                              IsPointer});
}

void accel::migrate::modeOf(const Expr *Mode, const ASTContext &Context,
                            bool &Reads, bool &Writes) {
  Reads = Writes = true;
  if (!Mode)
    return;
  // libstdc++'s and libc++'s values.
  if (const std::optional<int64_t> Value = constantOf(Mode, Context)) {
    Reads = *Value & 8;
    Writes = (*Value & 16) || (*Value & 1);
  }
}

/// Whether code goes on behind it, with the variables that there were: no return,
/// no assignment.
static bool changesNothing(const Stmt *S) {
  const auto Changes = [](const Stmt *Part) {
    if (const auto *B = dyn_cast<BinaryOperator>(Part))
      return B->isAssignmentOp();
    if (const auto *U = dyn_cast<UnaryOperator>(Part))
      return U->isIncrementDecrementOp();
    if (const auto *Call = dyn_cast<CallExpr>(Part)) {
      const FunctionDecl *F = Call->getDirectCallee();
      const auto *O = dyn_cast<CXXOperatorCallExpr>(Call);
      return (O && O->isAssignmentOp()) || (F && F->isNoReturn());
    }
    return isa<ReturnStmt, BreakStmt, ContinueStmt, GotoStmt, CXXThrowExpr>(Part);
  };
  return !existsIn(S, Changes, LambdaBodies::Skip);
}

/// A stream is opened: `Path` becomes one that only the main process writes.
void FileFacts::openStream(const Expr *E, const CXXRecordDecl *D,
                            llvm::ArrayRef<const Expr *> Args) {
  if (Args.empty() || isa<CXXDefaultArgExpr>(Args[0]) ||
      !isPath(plain(Args[0])->getType()) || !Text.mayEdit(E->getExprLoc()))
    return;
  bool Reads = D->getName() != "basic_ofstream";
  bool Writes = D->getName() != "basic_ifstream";
  if (Reads && Writes) {
    const Expr *Mode = Args.size() > 1 ? Args[1] : nullptr;
    modeOf(Mode, Context, Reads, Writes);
    if (Reads && Writes)
      return say("ACL0226", E->getExprLoc(),
                    "the program opens a file to read and to write it, and "
                    "every process would write it",
                    "Open it for one of both: with std::ofstream or "
                    "std::ifstream.");
  }
  file(E, Args[0], Writes);
}

/// `path` becomes `accelerator.main_process_path(path)`.
void FileFacts::mainPath(const Expr *Use, const Expr *Path) {
  if (!Text.mayEdit(Use->getExprLoc()))
    return;
  if (Index.BeforeMain.count(Function))
    return say("ACL0184", Use->getExprLoc(),
                  "the program opens a file to write it before main begins, "
                  "when no accelerator exists",
                  "Open it in main.");
  edit(EditKind::WrittenPath, written(Path));
}

/// A file is opened, at `Path`.
FileUse &FileFacts::file(const Expr *Use, const Expr *Path, bool Writes) {
  FileUse &F = addUse(Use, Path);
  F.Writes = Writes;
  if (Writes) {
    mainPath(Use, Path);
  } else if (!F.InSamples && Text.mayEdit(Use->getExprLoc()) &&
             !Index.BeforeMain.count(Function)) {
    // Where it turns out that the program may have written it.
    if (std::optional<TextRange> R = Text.range(written(Path)))
      F.Argument = Spelled{here(), *R};
  }
  return F;
}

/// `popen(command, "w")`: the others talk to nobody.
void FileFacts::command(const CallExpr *E) {
  const auto *Mode = E->getNumArgs() > 1
                         ? dyn_cast<StringLiteral>(bare(E->getArg(1)))
                         : nullptr;
  if (Mode && Mode->getString().starts_with("r"))
    return say("ACL0227", E->getExprLoc(),
               "the program runs a command and reads what it prints: every "
               "process runs it, and reads what its own has printed",
               "Where it prints something else each time, or changes something, "
               "run it on the main process and give what it printed to all with "
               "accelerator.broadcast_object(text).");
  if (!Mode)
    return say("ACL0226", E->getExprLoc(),
               "the program runs a command, and it is not written here whether "
               "it reads from it or writes to it",
               "Give popen the mode as a literal.");
  if (Index.BeforeMain.count(Function))
    return say("ACL0184", E->getExprLoc(),
                  "the program runs a command before main begins, when no "
                  "accelerator exists",
                  "Run it in main.");
  edit(EditKind::Command, written(E->getArg(0)));
}

/// An argument as it is written, without the conversion to the parameter.
/// Of a macro that is the path, `#define CHECKPOINT "net.pt"`, where it is named: what
/// is put around it there touches nothing of the macro.
SourceRange FileFacts::written(const Expr *E) {
  E = plain(E);
  const SourceRange Range = E->getSourceRange();
  while (const auto *Made = dyn_cast<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() == 0)
      break;
    E = plain(Made->getArg(0)); // std::string
  }
  if (!isa<StringLiteral>(E) || !Range.getBegin().isMacroID())
    return Range;
  const LangOptions &Language = Context.getLangOpts();
  const SourceRange Named = Text.SM.getExpansionRange(Range.getBegin()).getAsRange();
  const bool IsAll =
      Named.getBegin() == Named.getEnd() &&
      Lexer::isAtStartOfMacroExpansion(Range.getBegin(), Text.SM, Language) &&
      Lexer::isAtEndOfMacroExpansion(Range.getEnd(), Text.SM, Language);
  return IsAll ? Named : Range;
}

/// Whether a condition may have to do with files: it calls something else than methods
/// of paths and strings.
static bool mayAskForFiles(const Expr *Condition) {
  return anyIn<CallExpr>(Condition, [](const CallExpr *Call) {
    const FunctionDecl *F = calleeOf(Call);
    return !F || !isInStd(F) || !isa<CXXMethodDecl>(F);
  });
}

/// `if (!folder.empty()) create_directories(folder);` without braces: that `if`, where
/// all may wait in front of it as well as in it. Else null.
const IfStmt *FileFacts::branchWithout() const {
  const auto *If = dyn_cast_or_null<IfStmt>(ownerOfBody());
  return If && !If->hasInitStorage() && !If->hasVarStorage() &&
                 !mayAskForFiles(If->getCond())
             ? If
             : nullptr;
}

void FileFacts::construct(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  if (isFileStream(D))
    openStream(E, D, {E->getArgs(), E->getNumArgs()});
  // A folder is listed.
  if (isInStd(D) && E->getNumArgs() &&
      (nameOf(D) == "directory_iterator" ||
       nameOf(D) == "recursive_directory_iterator") &&
      isPath(plain(E->getArg(0))->getType()))
    file(E, E->getArg(0), /*Writes=*/false).Below = true;
  // The files of a data set of LibTorch's.
  if (E->getNumArgs() && !E->getConstructor()->isCopyOrMoveConstructor() &&
      isOrDerives(D, "torch::data::datasets::MNIST") &&
      isPath(plain(E->getArg(0))->getType()))
    addUse(E, E->getArg(0)).Below = true;
}

void FileFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                          llvm::StringRef Name) {
  if (Name == "save" && isTorch(F))
    save(E);
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  const llvm::ArrayRef<const Expr *> Args(E->getArgs(), E->getNumArgs());
  const bool C = F->isExternC() || isInStd(F);
  auto Writes = [&](std::string What) {
    say("ACL0226", E->getExprLoc(),
           std::move(What) + ", and every process would do it",
           "Guard it with `if (accelerator.is_main_process())`; read what it "
           "needs of the batch before, on all processes.");
  };
  // What the others write into is there always.
  const char *const MustBeNew =
      "the program makes a file that must not be there yet";
  auto Opens = [&](const Expr *Path, const Expr *How) {
    const std::string Mode = openMode(How);
    if (Mode.empty() || Mode.find('+') != std::string::npos)
      return Writes("the program opens a file to write it");
    if (Mode.find('x') != std::string::npos)
      return Writes(MustBeNew);
    file(E, Path, Mode.find_first_of("wa") != std::string::npos);
  };
  if (const ProgramIndex::Opener *Opener = Index.openerOf(E))
    return Opens(E->getArg(Opener->Path), E->getArg(Opener->Mode));
  if (C && (Name == "fopen" || Name == "freopen") && E->getNumArgs() >= 2) {
    // Where its own function is called, the path and the mode are known.
    const auto It = Function ? Index.Openers.find(Function->getCanonicalDecl())
                             : Index.Openers.end();
    if (It == Index.Openers.end() || It->second.Opens != E)
      Opens(E->getArg(0), E->getArg(1));
    return;
  }
  if (C && Name == "popen")
    return command(E);
  if (F->isExternC() && (Name == "mkstemp" || Name == "mkdtemp" ||
                         Name == "mkstemps" || Name == "mkostemp"))
    return Writes("the program makes a file with a new name");
  if (F->isExternC() && Name == "opendir" && E->getNumArgs() == 1) {
    file(E, E->getArg(0), /*Writes=*/false).Below = true;
    return;
  }
  if (F->isExternC() && (Name == "creat" || Name == "open") &&
      E->getNumArgs() >= 2) {
    const std::optional<int64_t> Flags =
        Name == "creat" ? O_WRONLY : constantOf(E->getArg(1), Context);
    const int64_t Access = Flags ? *Flags & O_ACCMODE : O_RDWR;
    if (Access == O_RDWR)
      return Writes("the program opens a file to read and to write it");
    if (Access == O_WRONLY && Flags && *Flags & O_EXCL)
      return Writes(MustBeNew);
    file(E, E->getArg(0), Access == O_WRONLY);
    return;
  }
  // std::make_unique<std::ofstream>("log.csv")
  if (isInStd(F) && (Name == "make_unique" || Name == "make_shared"))
    for (const QualType Made : typeArgumentsOf(F))
      if (const CXXRecordDecl *D = Made->getAsCXXRecordDecl(); isFileStream(D))
        openStream(E, D, Args);
  if (const auto *M = dyn_cast<CXXMethodDecl>(F)) {
    const CXXRecordDecl *D = M->getParent();
    if (Name == "open" &&
        (isFileStream(D) || (nameOf(D) == "basic_filebuf" && isInStd(D))))
      openStream(E, D, Args);
    // logs.emplace_back("log.csv"), logs.try_emplace(name, "log.csv")
    if (const CXXRecordDecl *Stream = streamMadeBy(M)) {
      // The key, or where it comes, and the key.
      const size_t Before = !nameOf(D).contains("map") ? 0
                            : Name == "emplace_hint"   ? 2
                                                       : 1;
      openStream(E, Stream, Args.drop_front(std::min(Args.size(), Before)));
    }
    if (!isTorch(D) || Args.empty())
      return;
    const bool ToPath = isPath(plain(Args[0])->getType());
    if (Name == "save_to" && nameOf(D) == "OutputArchive" && Args.size() == 1)
      saveArchive(cast<CXXMemberCallExpr>(E));
    // script_module.save(path)
    if (ToPath && Name == "save" && nameOf(D) == "Module" &&
        llvm::StringRef(qualifiedName(D)).contains("jit"))
      file(E, Args[0], true);
    if (ToPath && Name == "load_from" && nameOf(D) == "InputArchive")
      file(E, Args[0], false);
    return;
  }
  if (Name == "load" && isTorch(F))
    for (const Expr *Arg : E->arguments())
      if (isPath(plain(Arg)->getType()))
        file(E, Arg, false).IsLoad = true;
  const bool InFiles =
      llvm::StringRef(qualifiedName(F)).contains("filesystem::");
  // Whether it is there already matters where more than output depends on it.
  if (((InFiles && (Name == "exists" || Name == "is_regular_file" ||
                    Name == "is_directory" || Name == "file_size")) ||
       (C && (Name == "access" || Name == "stat"))) &&
      E->getNumArgs() >= 1) {
    const IfStmt *If = nullptr;
    for (const Stmt *S : Path)
      if (const auto *Around = dyn_cast<IfStmt>(S))
        If = Around;
    FileUse &Asked = file(E, E->getArg(0), false);
    Asked.Asks = true;
    Asked.AskedIn = If;
    Asked.IsQuiet = If && Quiet(Index).is(If) && changesNothing(If);
    return;
  }
  if (makesFolder(F) && !(tellsFolderMade(E) && isResultUsed(E))) {
    if (E->getNumArgs() >= 1) {
      FileUse &Made = addUse(E, E->getArg(0));
      Made.MakesFolder = true;
      Made.Makes = statementOf(E);
      if (!Made.Makes)
        Made.Makes = branchWithout();
      if (!Made.Makes && isBodyOfItsOwn()) {
        Made.Makes = E;
        Made.HasBlock = false;
      }
      Made.Here = here();
    }
    // All processes may try. Who looks at the answer is told different things,
    // which is followed as any other value that differs.
    say("ACL0155", E->getExprLoc(),
           "the folder is made by whichever process comes first");
  }
}
