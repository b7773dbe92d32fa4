//===- OutputFunctions.cpp - Functions that only the main process calls ---===//
//
// A function of the person's own that reads and writes one file (appends a
// record to a log, and its head where the file is new) cannot be made to write
// on the main process alone from within: what it does next depends on what it
// has read. Where it does nothing else that the program sees, its calls are the
// main process's.
//
//===----------------------------------------------------------------------===//

#include "Code/AstVisitor.h"
#include "Leaves.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

std::vector<FileUse> accel::migrate::updatedFiles(const FunctionDecl *F,
                                                  const ASTContext &Context) {
  std::vector<FileUse> Found;
  const auto Add = [&](const Expr *Use, const Expr *Path) {
    Found.push_back({F, Use, Path, /*Writes=*/true, std::nullopt});
  };
  const auto AddStream = [&](const auto *E, const CXXRecordDecl *D) {
    if (nameOf(D) != "basic_fstream" || !isFileStream(D) ||
        E->getNumArgs() == 0 || isa<CXXDefaultArgExpr>(E->getArg(0)))
      return;
    bool Reads = true, Writes = true;
    modeOf(E->getNumArgs() > 1 ? E->getArg(1) : nullptr, Context, Reads,
           Writes);
    if (Reads && Writes)
      Add(E, E->getArg(0));
  };
  eachIn<Expr>(F->getBody(), [&](const Expr *E) {
    if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
      AddStream(Made, Made->getConstructor()->getParent());
    const auto *Call = dyn_cast<CallExpr>(E);
    const FunctionDecl *Called = calleeOf(Call);
    if (nameOf(Called) == "open" && isa<CXXMemberCallExpr>(E))
      AddStream(Call, cast<CXXMethodDecl>(Called)->getParent());
    if (nameOf(Called) == "fopen" && Call->getNumArgs() == 2)
      if (const auto *Mode = dyn_cast<StringLiteral>(bare(Call->getArg(1)));
          Mode && Mode->getString().contains('+'))
        Add(Call, Call->getArg(0));
  });
  return Found;
}

std::set<const FunctionDecl *>
accel::migrate::outputFunctions(const ProgramIndex &Index) {
  const CallSites Calls(Index);
  std::set<const FunctionDecl *> Result;
  for (const FunctionDecl *F : Index.Functions) {
    const auto *M = dyn_cast<CXXMethodDecl>(F);
    if (!F->getIdentifier() || F->isMain() || F->isTemplateInstantiation() ||
        isa<CXXConstructorDecl, CXXDestructorDecl>(F) ||
        (M && M->isVirtual()) || Index.BeforeMain.count(F))
      continue;
    // The file is returned: each process has one, and opens it in its own way.
    if (const CXXRecordDecl *D = recordOf(F->getReturnType());
        D && isFileStream(D))
      continue;
    const bool Tensors = llvm::any_of(F->parameters(), [](const ParmVarDecl *P) {
      return holdsTensors(P->getType()) || moduleOf(P->getType());
    });
    std::set<const FunctionDecl *> Seen = {F};
    if (!Tensors && Calls.isOnlyCalled(F) &&
        !updatedFiles(F, Index.Context).empty() &&
        leavesNoTrace(F->getBody(), Index, Seen, /*InFunction=*/true))
      Result.insert(F->getCanonicalDecl());
  }
  return Result;
}
