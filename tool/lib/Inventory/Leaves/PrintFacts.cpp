//===- PrintFacts.cpp - What is printed -----------------------------------===//

#include "Leaves.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace accel::migrate;
using namespace clang;

/// Whether what is visited is the last word of a function that gives up:
/// followed, in its block, by exit, abort, throw or return; or in a handler.
bool PrintFacts::isFarewell() const {
  if (llvm::any_of(Path, [](const Stmt *S) { return isa<CXXCatchStmt>(S); }))
    return true;
  const Stmt *Child = nullptr;
  const CompoundStmt *Block = block(&Child);
  // The body of main ends too, but not because of an error.
  if (!Block || !Child || !Function || Block == Function->getBody())
    return false;
  const auto At = llvm::find(Block->body(), Child);
  return At != Block->body_end() &&
         std::any_of(std::next(At), Block->body_end(), [](const Stmt *S) {
           return isa<ReturnStmt>(S) || (isa<Expr>(S) && neverReturns(S));
         });
}

/// Whether it prints to the FILE* that it is given: C's functions, std::print, another
/// library's. std::make_unique, std::function and their kin hand it on.
static bool printsAtOnce(const FunctionDecl *F) {
  return F->isExternC() || !isInStd(F) || nameOf(F).contains("print");
}

/// `FILE* to = stdout`, `log(stdout, …)`: whoever has it prints later. What C's own
/// functions and other libraries' do with it is known by their calls.
void PrintFacts::standardOutput(const DeclRefExpr *E) {
  for (const Stmt *S : llvm::reverse(Path)) {
    if (S == E || isa<ImplicitCastExpr, ParenExpr>(S))
      continue;
    const auto *Call = dyn_cast<CallExpr>(S);
    const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
    if (F && !Index.isOwn(F) && printsAtOnce(F))
      return;
    break;
  }
  if (Text.mayEdit(E->getExprLoc()))
    if (std::optional<TextRange> R = expansion(E))
      edit(EditKind::PrintStdout, *R);
}

/// `print = std::printf;`: a function that prints, and is not called here.
void PrintFacts::givenAway(const DeclRefExpr *E, const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {"printf", "puts", "putchar"};
  if (!Names.count(nameOf(F)) ||
      !(F->isExternC() || isInStd(F)) || !Text.mayEdit(E->getLocation()))
    return;
  const bool IsCalled = llvm::any_of(Path, [E](const Stmt *S) {
    const auto *Call = dyn_cast<CallExpr>(S);
    return Call && Call->getCallee()->IgnoreParenImpCasts() == E;
  });
  if (!IsCalled)
    say("ACL0154", E->getLocation(),
        "'" + F->getNameAsString() +
            "' is given to something that calls it, on every process",
        "Give it a lambda that calls accelerator.printf.");
}

void PrintFacts::name(const DeclRefExpr *E) {
  if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl()))
    return givenAway(E, F);
  const auto *V = dyn_cast<VarDecl>(E->getDecl());
  if (!V || !V->hasGlobalStorage())
    return;
  const llvm::StringRef Name = nameOf(V);
  if (Name == "stdout" && V->isExternC())
    return standardOutput(E);
  const bool Out = Name == "cout" || Name == "wcout";
  const bool Err = Name == "cerr" || Name == "clog";
  if (!isInStd(V) || (!Out && !Err) || !Text.mayEdit(E->getLocation()))
    return; // Somebody else's code prints as it likes.
  if (Name == "wcout")
    return say("ACL0154", E->getLocation(),
                  "wide characters are printed, by every process", "");
  if (Err && isFarewell())
    return;
  const EditKind Kind = Out ? EditKind::PrintCout : EditKind::PrintCerr;
  if (inMacro(E->getSourceRange(), Name, Kind))
    return;
  if (std::optional<TextRange> R = Text.range(E->getSourceRange()))
    edit(Kind, *R);
  else
    problem(E->getExprLoc());
}

/// `#define LOG(text) std::cout << text`: changed in the macro, once for all who
/// use it. Before main begins there is no accelerator.
bool PrintFacts::inMacro(SourceRange Range, llvm::StringRef Word,
                         EditKind Kind) {
  if (Index.BeforeMain.count(Function))
    return false;
  const std::optional<TextRange> R = Text.inMacroBody(Range, Word);
  if (R)
    Program.Edits.push_back({Kind, here(), *R, "", /*InMacro=*/true});
  return R.has_value();
}

/// `stdout` or `stderr`, given to one of C's functions or to fmt::print. Another
/// file: how it was opened is looked at elsewhere.
void PrintFacts::toStandardFile(const Expr *To) {
  const auto *Ref = dyn_cast<DeclRefExpr>(plain(To));
  const llvm::StringRef Name = Ref ? nameOf(Ref->getDecl()) : "";
  if ((Name != "stdout" && Name != "stderr") ||
      (Name == "stderr" && isFarewell()))
    return;
  const EditKind Kind =
      Name == "stdout" ? EditKind::PrintStdout : EditKind::PrintStderr;
  // The names are macros, perhaps in the body of one of the project's.
  if (const SourceLocation Loc = Ref->getLocation();
      Loc.isMacroID() &&
      inMacro(Text.SM.getImmediateExpansionRange(Loc).getBegin(), Name, Kind))
    return;
  if (Text.text(To->getSourceRange()) == Name)
    if (std::optional<TextRange> R = expansion(To))
      edit(Kind, *R);
}

void PrintFacts::onEveryProcess(const CallExpr *E, const std::string &Name) {
  say("ACL0154", E->getExprLoc(), "'" + Name + "' prints on every process",
      "Put `if (accelerator.is_main_process())` before it.");
}

/// fmt::print, std::print and their kin take a FILE* first.
void PrintFacts::printToFile(const CallExpr *E, const FunctionDecl *F) {
  if (E->getNumArgs() == 0 || isa<CXXDefaultArgExpr>(E->getArg(0)))
    return onEveryProcess(E, qualifiedName(F));
  const Expr *First = plain(E->getArg(0));
  if (const CXXRecordDecl *D = recordOf(First->getType());
      D && isOrDerives(D, "std::basic_ios"))
    return; // std::cout is changed where it stands.
  if (First->getType()->isPointerType() && recordOf(First->getType()))
    return toStandardFile(E->getArg(0));
  const std::optional<TextRange> R =
      Text.upToOrMacro(E->getArg(0)->getBeginLoc(), E->getArg(0)->getBeginLoc());
  if (!R)
    return problem(E->getExprLoc());
  edit(EditKind::PrintFmt, *R);
}

/// Whether printf prints what stands between the quotes of a literal as puts or
/// putchar prints it.
static bool isFormat(const Expr *E, llvm::StringRef Literal) {
  const char Quote = isa<StringLiteral>(E)      ? '"'
                     : isa<CharacterLiteral>(E) ? '\''
                                                : '\0';
  return Quote && Literal.size() >= 2 && Literal.front() == Quote &&
         Literal.find_first_of(Quote == '"' ? "%\"" : "%\"'", 1) ==
             Literal.size() - 1 &&
         !Literal.contains("\\0");
}

/// torch::print(x), whose other overload takes a stream and the width of a line;
/// x.print().
void PrintFacts::tensor(const CallExpr *E) {
  if (isa<CXXMemberCallExpr>(E))
    return onEveryProcess(E, "print");
  const Expr *Tensor = E->getNumArgs() ? E->getArg(0) : nullptr;
  if (!Tensor || !isTensor(Tensor->getType()))
    return;
  const std::optional<TextRange> R = editable(Tensor->getSourceRange());
  if (!R)
    return;
  edit(EditKind::PrintTensorStream, R->part(0, 0));
  if (E->getNumArgs() == 1 || isa<CXXDefaultArgExpr>(E->getArg(1)))
    edit(EditKind::PrintTensorWidth, R->part(R->Length, 0));
}

/// How the rule changes a call of one of C's functions; none for other names.
static std::optional<EditKind> kindOf(llvm::StringRef Name) {
  return llvm::StringSwitch<std::optional<EditKind>>(Name)
      .Case("printf", EditKind::PrintPrintf)
      .Case("puts", EditKind::PrintPuts)
      .Case("putchar", EditKind::PrintPutchar)
      .Case("fprintf", EditKind::PrintFprintf)
      .Case("vprintf", EditKind::PrintVprintf)
      .Default(std::nullopt);
}

/// `write(1, …)`, `dprintf(STDOUT_FILENO, …)`.
void PrintFacts::toDescriptor(const CallExpr *E, llvm::StringRef Name) {
  // In a macro of the program's the text is all of that macro.
  const auto R =
      Text.charRange(Text.SM.getExpansionRange(E->getArg(0)->getSourceRange()));
  const llvm::StringRef Spelled = R ? Text.text(*R) : "";
  if (Spelled == "1" || Spelled == "STDOUT_FILENO")
    edit(EditKind::PrintDescriptor, *R);
  else
    onEveryProcess(E, Name.str());
}

void PrintFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                           llvm::StringRef Name) {
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  if (Name == "print" && isTorch(F))
    return tensor(E);
  const bool Global = F->isExternC() || isInStd(F);
  if (!Global && !F->getDeclContext()->isFileContext())
    return;
  if (const std::optional<EditKind> Kind = Global ? kindOf(Name) : std::nullopt)
    return printed(E, Name, *Kind);
  const std::string Qualified = qualifiedName(F);
  if ((Name == "print" || Name == "println") &&
      (llvm::StringRef(Qualified).starts_with("fmt::") || isInStd(F)))
    return printToFile(E, F);
  if (Global && (Name == "fputs" || Name == "fputc" || Name == "putc" ||
                 Name == "fwrite" || Name == "vfprintf"))
    return toStandardFile(
        E->getArg(Name == "vfprintf" ? 0 : E->getNumArgs() - 1));
  if (F->isExternC() && (Name == "write" || Name == "dprintf") &&
      E->getNumArgs() > 1 && constantOf(E->getArg(0), Context) == 1)
    return toDescriptor(E, Name);
  static const llvm::StringSet<> Levels = {"trace", "debug",    "info", "warn",
                                           "error", "critical", "log"};
  if (llvm::StringRef(Qualified).starts_with("spdlog::") && Levels.count(Name))
    say("ACL0154", E->getExprLoc(), "'" + Qualified + "' logs on every process",
        "Behind the line that makes the accelerator: `if "
        "(!accelerator.is_main_process()) "
        "spdlog::set_level(spdlog::level::off);`.");
}

/// One of C's functions that print, by its name.
void PrintFacts::printed(const CallExpr *E, llvm::StringRef Name,
                         EditKind Kind) {
  if (Kind == EditKind::PrintFprintf) {
    if (E->getNumArgs() < 2)
      return;
    // stdout is a macro; what it expands to differs.
    if (Text.text(E->getArg(0)->getSourceRange()) != "stdout")
      return toStandardFile(E->getArg(0));
  }
  if (Kind == EditKind::PrintPrintf &&
      inMacro(E->getCallee()->getSourceRange(), Name, Kind))
    return;
  const std::optional<TextRange> Callee = calledName(E->getCallee());
  if (!Callee)
    return;
  TextRange Range = *Callee;
  if (Kind != EditKind::PrintPrintf) {
    const Expr *First = E->getArg(Kind == EditKind::PrintFprintf ? 1 : 0);
    const std::optional<TextRange> R =
        Text.upToOrMacro(E->getBeginLoc(), First->getBeginLoc());
    if (!R)
      return problem(E->getExprLoc());
    Range = *R;
    const std::string Literal = Text.text(First->getSourceRange());
    if ((Kind == EditKind::PrintPuts || Kind == EditKind::PrintPutchar) && !Range.Use &&
        isFormat(plain(First), Literal)) {
      Range.Length += Literal.size();
      edit(EditKind::PrintLiteral, Range,
           Literal.substr(1, Literal.size() - 2) +
               (Kind == EditKind::PrintPuts ? "\\n" : ""));
      return;
    }
  }
  edit(Kind, Range);
}
