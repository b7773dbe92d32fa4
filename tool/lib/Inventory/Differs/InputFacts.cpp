//===- InputFacts.cpp - What may differ: the standard input ---------------===//
//
// Only process 0 has it. All read what it has read.
//
//===----------------------------------------------------------------------===//

#include "Differs.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// The name std::cin. Waiting for a key is the main process's (OutputFacts.cpp).
void InputFacts::name(const DeclRefExpr *E) {
  const auto *V = dyn_cast<VarDecl>(E->getDecl());
  if (!V || !V->hasGlobalStorage() || !isInStd(V) || nameOf(V) != "cin" ||
      !Text.mayEdit(E->getLocation()))
    return;
  for (const Stmt *S : Path)
    if (const auto *Call = dyn_cast<CallExpr>(S);
        Call && waitsForKey(Call) && statementOf(Call))
      return;
  if (inSamples())
    return say("ACL0127", E->getLocation(),
               "the standard input is read where a data set loads samples, "
               "perhaps in another thread",
               "Read it before the training.");
  edit(EditKind::InputCin, E->getSourceRange());
}

/// C's functions.
void InputFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                           llvm::StringRef Name) {
  if ((!F->isExternC() && !isInStd(F)) ||
      isa<CXXMethodDecl>(F) || !Text.mayEdit(E->getExprLoc()))
    return;
  if ((Name == "read" || Name == "fdopen") && E->getNumArgs() > 1 &&
      (constantOf(E->getArg(0), Context) == 0 ||
       llvm::StringRef(Text.text(E->getArg(0)->getSourceRange()))
           .contains("stdin")))
    return say("ACL0127", E->getExprLoc(),
               "the standard input is read by its descriptor, which process 0 "
               "alone has something in",
               "Read it with std::cin or with C's functions, which give all "
               "what process 0 has read.");
  std::optional<TextRange> R;
  EditKind Kind = EditKind::InputStdin;
  if (Name == "scanf" && E->getNumArgs() > 0) {
    Kind = EditKind::InputScanf;
    R = Text.upToOrMacro(E->getBeginLoc(), E->getArg(0)->getBeginLoc());
  } else if (Name == "getchar") {
    // A key that only ends a wait is the main process's (OutputFacts.cpp).
    if (statementOf(E))
      return;
    Kind = EditKind::InputGetchar;
    R = Text.rangeOrMacro(E->getSourceRange());
  } else {
    static const llvm::StringSet<> Readers = {
        "fgets", "fscanf", "fgetc", "getc", "fread", "getline", "getdelim",
        "vfscanf", "feof", "ferror"};
    if (!Readers.count(Name))
      return;
    for (const Expr *Arg : E->arguments())
      if (Text.text(Arg->getSourceRange()) == "stdin")
        if (std::optional<TextRange> File = expansion(Arg))
          edit(EditKind::InputStdin, *File);
    return;
  }
  if (!R)
    return problem(E->getExprLoc());
  edit(Kind, *R);
}
