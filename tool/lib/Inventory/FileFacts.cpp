//===- FileFacts.cpp - What is written to files ---------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

namespace {
class LoadFinder : public RecursiveASTVisitor<LoadFinder> {
public:
  bool shouldVisitLambdaBody() const { return true; }
  bool VisitCallExpr(CallExpr *E) {
    if (const FunctionDecl *F = E->getDirectCallee())
      if (F->getIdentifier() && F->getName() == "load" && isTorch(F))
        Loads.push_back(E);
    return true;
  }
  std::vector<const CallExpr *> Loads;
};
} // namespace

static bool isPath(QualType T) {
  T = T.getNonReferenceType();
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  if (D)
    return D->getIdentifier() && isInStd(D) &&
           (D->getName() == "basic_string" || D->getName() == "path");
  return T->isPointerType() || T->isArrayType();
}

void FactFinder::save(const CallExpr *E) {
  if (E->getNumArgs() < 2)
    return;
  if (!isPath(plain(E->getArg(1))->getType()))
    return refuse("ACL0137", E->getExprLoc(),
                  "torch::save writes into a stream, by every process",
                  "Save to a path, or guard it with `if "
                  "(accelerator.is_main_process())`.");
  const std::optional<TextRange> Callee = nameOf(E->getCallee());
  if (!Callee)
    return;
  SaveFact Fact;
  Fact.In = here();
  Fact.Callee = *Callee;
  // A load later on, in the text of this function or in another one, which may
  // be called later.
  const SourceManager &SM = Text.SM;
  for (const FunctionDecl *F : Index.Functions) {
    LoadFinder Finder;
    Finder.TraverseStmt(F->getBody());
    for (const CallExpr *Load : Finder.Loads)
      Fact.ReadLater |=
          F != Function || inLoop() ||
          SM.isBeforeInTranslationUnit(E->getExprLoc(), Load->getExprLoc());
  }
  if (Fact.ReadLater) {
    const Stmt *Statement = nullptr;
    block(&Statement);
    std::optional<LinePoint> After;
    if (const auto *S = dyn_cast_or_null<Expr>(Statement);
        S && plain(S) == E)
      After = Text.after(S);
    if (!After)
      return refuse("ACL0137", E->getExprLoc(),
                    "the file that is saved here is read again, and there is "
                    "no place behind it where the processes could wait",
                    "Make the call of torch::save a statement of its own, in "
                    "braces.");
    Fact.After = *After;
  }
  Program.Saves.push_back(std::move(Fact));
}

void FactFinder::fileCall(const CallExpr *E, const FunctionDecl *F) {
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  const llvm::StringRef Name = F->getName();
  const bool C = F->isExternC() || isInStd(F);
  auto Writes = [&](std::string What) {
    refuse("ACL0137", E->getExprLoc(),
           std::move(What) + ", and every process would do it",
           "Guard it with `if (accelerator.is_main_process())`; read what it "
           "needs of the batch before, on all processes.");
  };
  if (C && Name == "fopen" && E->getNumArgs() == 2) {
    const auto *Mode = dyn_cast<StringLiteral>(bare(E->getArg(1)));
    if (!Mode || Mode->getString().find_first_of("wa+") != llvm::StringRef::npos)
      Writes("the program opens a file to write it");
    return;
  }
  if (C && (Name == "system" || Name == "popen"))
    return Writes("the program runs a command");
  if (const auto *M = dyn_cast<CXXMethodDecl>(F)) {
    const CXXRecordDecl *D = M->getParent();
    if (Name == "open" && D->getIdentifier() && isInStd(D) &&
        (D->getName() == "basic_ofstream" || D->getName() == "basic_fstream"))
      return Writes("the program opens a file to write it");
    if (Name == "save_to" && D->getIdentifier() &&
        D->getName() == "OutputArchive" && isTorch(D))
      return Writes("the program writes an archive");
    return;
  }
  const bool Files =
      llvm::StringRef(qualifiedName(F)).contains("filesystem::");
  if ((Files && (Name == "create_directories" || Name == "create_directory")) ||
      (C && Name == "mkdir")) {
    // All processes may try; who looks at the answer is told different things.
    const Stmt *Statement = nullptr;
    block(&Statement);
    const auto *S = dyn_cast_or_null<Expr>(Statement);
    if (S && plain(S) == E)
      refuse("ACL0155", E->getExprLoc(),
             "the folder is made by whichever process comes first");
    else
      Writes("the program makes a folder and looks whether it was made");
    return;
  }
  if (Files && (Name == "remove" || Name == "remove_all" || Name == "rename" ||
                Name == "copy" || Name == "copy_file"))
    return Writes("the program changes files");
  if (C && (Name == "remove" || Name == "rename" || Name == "unlink") &&
      F->isExternC())
    return Writes("the program changes files");
}
