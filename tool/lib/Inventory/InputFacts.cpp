//===- InputFacts.cpp - What may differ: the standard input ---------------===//
//
// Only process 0 has it. All read what it has read.
//
//===----------------------------------------------------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// The name std::cin. Waiting for a key is the main process's.
void FactFinder::input(const DeclRefExpr *E) {
  if (!Text.mayEdit(E->getLocation()))
    return;
  const Stmt *Statement = nullptr;
  block(&Statement);
  const auto *Whole = dyn_cast_or_null<Expr>(Statement);
  const auto *Call =
      Whole ? dyn_cast<CXXMemberCallExpr>(plain(Whole)) : nullptr;
  const CXXMethodDecl *M = Call ? Call->getMethodDecl() : nullptr;
  if (M && M->getIdentifier() &&
      (M->getName() == "ignore" ||
       (M->getName() == "get" && Call->getNumArgs() == 0))) {
    guard(Call, "a key is waited for");
    return;
  }
  if (inSamples())
    return refuse("ACL0220", E->getLocation(),
                  "the standard input is read where a data set loads samples, "
                  "perhaps in another thread",
                  "Read it before the training.");
  if (std::optional<TextRange> R = editable(E->getSourceRange()))
    Program.Inputs.push_back({here(), InputFact::Cin, *R});
}

/// C's functions.
void FactFinder::inputCall(const CallExpr *E, const FunctionDecl *F) {
  if ((!F->isExternC() && !isInStd(F)) || !F->getIdentifier() ||
      isa<CXXMethodDecl>(F) || !Text.mayEdit(E->getExprLoc()))
    return;
  const llvm::StringRef Name = F->getName();
  std::optional<TextRange> R;
  InputFact::KindTy Kind = InputFact::CStdin;
  if (Name == "scanf" && E->getNumArgs() > 0) {
    Kind = InputFact::Scanf;
    R = Text.upTo(E->getBeginLoc(), E->getArg(0)->getBeginLoc());
  } else if (Name == "getchar") {
    // A key that only ends a wait is the main process's (OutputFacts.cpp).
    if (statementOf(E))
      return;
    Kind = InputFact::Getchar;
    R = Text.range(E->getSourceRange());
  } else {
    static const llvm::StringSet<> Readers = {
        "fgets", "fscanf", "fgetc", "getc", "fread", "getline", "getdelim",
        "vfscanf", "feof", "ferror"};
    if (!Readers.count(Name))
      return;
    for (const Expr *Arg : E->arguments())
      if (Text.text(Arg->getSourceRange()) == "stdin")
        if (std::optional<TextRange> File = expansion(Arg))
          Program.Inputs.push_back({here(), InputFact::CStdin, *File});
    return;
  }
  if (!R)
    return problem(E->getExprLoc());
  Program.Inputs.push_back({here(), Kind, *R});
}
