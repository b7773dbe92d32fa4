//===- PrintFacts.cpp - What is printed -----------------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

static bool isForward(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && M->getIdentifier() && M->getName() == "forward" &&
         isOrDerives(M->getParent(), "torch::nn::Module");
}

/// Whether what is visited is the last word of a function that gives up:
/// followed, in its block, by exit, abort, throw or return; or in a handler.
bool FactFinder::isFarewell() const {
  const Stmt *Child = nullptr;
  const CompoundStmt *Block = nullptr;
  for (size_t I = Path.size(); I-- > 0;) {
    if (isa<CXXCatchStmt>(Path[I]))
      return true;
    if (!Block)
      if ((Block = dyn_cast<CompoundStmt>(Path[I])) && I + 1 < Path.size())
        Child = Path[I + 1];
  }
  if (!Block || !Child)
    return false;
  // The body of main ends too, but not because of an error.
  if (Block == Function->getBody())
    return false;
  bool Behind = false;
  for (const Stmt *S : Block->body()) {
    if (Behind) {
      if (isa<ReturnStmt>(S))
        return true;
      if (const auto *E = dyn_cast<Expr>(S)) {
        if (isa<CXXThrowExpr>(plain(E)))
          return true;
        if (const FunctionDecl *F = calleeOf(plain(E)); F && F->isNoReturn())
          return true;
      }
    }
    Behind |= S == Child;
  }
  return false;
}

void FactFinder::printStream(const DeclRefExpr *E) {
  const auto *V = dyn_cast<VarDecl>(E->getDecl());
  if (!V || !V->hasGlobalStorage() || !isInStd(V) || !V->getIdentifier())
    return;
  const llvm::StringRef Name = V->getName();
  const bool Out = Name == "cout" || Name == "wcout";
  const bool Err = Name == "cerr" || Name == "clog";
  if (!Out && !Err)
    return;
  if (!Text.mayEdit(E->getLocation()))
    return; // Somebody else's code prints as it likes.
  if (Name == "wcout")
    return refuse("ACL0154", E->getLocation(),
                  "wide characters are printed, by every process", "");
  if (isForward(Function))
    return refuse("ACL0138", E->getLocation(),
                  "the model prints in its forward, where it sees this "
                  "process's part of the batch only",
                  "Print in the training loop, from what item() returned.");
  if (Err && isFarewell())
    return;
  if (std::optional<TextRange> R = editable(E->getSourceRange()))
    Program.Prints.push_back(
        {here(), Out ? PrintFact::Cout : PrintFact::Cerr, *R});
}

void FactFinder::printCall(const CallExpr *E, const FunctionDecl *F) {
  const llvm::StringRef Name = F->getName();
  const bool Global = F->isExternC() || isInStd(F);
  PrintFact::KindTy Kind;
  if (!Global && !F->getDeclContext()->isNamespace() &&
      !F->getDeclContext()->isTranslationUnit())
    return;
  if (Global && Name == "printf")
    Kind = PrintFact::Printf;
  else if (Global && Name == "puts")
    Kind = PrintFact::Puts;
  else if (Global && Name == "putchar")
    Kind = PrintFact::Putchar;
  else if (Global && Name == "fprintf")
    Kind = PrintFact::FprintfStdout;
  else if ((Name == "print" || Name == "println") &&
           (llvm::StringRef(qualifiedName(F)).starts_with("fmt::") ||
            isInStd(F))) {
    if (Text.mayEdit(E->getExprLoc()))
      refuse("ACL0154", E->getExprLoc(),
             "'" + qualifiedName(F) + "' prints on every process",
             "Put `if (accelerator.is_main_process())` before it where its "
             "arguments read no tensors of the batch.");
    return;
  } else {
    return;
  }
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  if (Kind == PrintFact::FprintfStdout) {
    // stdout is a macro; what it expands to differs.
    const std::string To = Text.text(E->getArg(0)->getSourceRange());
    if (To == "stderr")
      return;
    if (To != "stdout")
      return; // A file; how it was opened is looked at elsewhere.
    if (E->getNumArgs() < 2)
      return;
  }
  if (isForward(Function))
    return refuse("ACL0138", E->getExprLoc(),
                  "the model prints in its forward, where it sees this "
                  "process's part of the batch only",
                  "Print in the training loop, from what item() returned.");
  const std::optional<TextRange> Callee = nameOf(E->getCallee());
  if (!Callee)
    return;
  TextRange Range = *Callee;
  if (Kind != PrintFact::Printf) {
    const Expr *First = E->getArg(Kind == PrintFact::FprintfStdout ? 1 : 0);
    const std::optional<TextRange> R =
        Text.upTo(E->getBeginLoc(), First->getBeginLoc());
    if (!R)
      return problem(E->getExprLoc());
    Range = *R;
  }
  Program.Prints.push_back({here(), Kind, Range});
}
