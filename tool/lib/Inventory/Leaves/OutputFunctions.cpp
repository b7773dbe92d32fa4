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

namespace {
/// Files that are opened to be read and written.
class UpdateFinder : public AstVisitor {
public:
  explicit UpdateFinder(const ASTContext &Context) : Context(Context) {}

  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    add(E, E->getConstructor()->getParent(), {E->getArgs(), E->getNumArgs()});
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    if (const CXXMethodDecl *M = E->getMethodDecl(); nameOf(M) == "open")
      add(E, M->getParent(), {E->getArgs(), E->getNumArgs()});
    return true;
  }
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (nameOf(F) != "fopen" || E->getNumArgs() != 2)
      return true;
    if (const auto *Mode = dyn_cast<StringLiteral>(bare(E->getArg(1)));
        Mode && Mode->getString().contains('+'))
      Found.push_back({E, E->getArg(0)});
    return true;
  }

  std::vector<std::pair<const Expr *, const Expr *>> Found;

private:
  void add(const Expr *Use, const CXXRecordDecl *D,
           llvm::ArrayRef<const Expr *> Args) {
    if (!isFileStream(D) || D->getName() != "basic_fstream" || Args.empty() ||
        isa<CXXDefaultArgExpr>(Args[0]))
      return;
    bool Reads = true, Writes = true;
    modeOf(Args.size() > 1 ? Args[1] : nullptr, Context, Reads, Writes);
    if (Reads && Writes)
      Found.push_back({Use, Args[0]});
  }

  const ASTContext &Context;
};

/// Where functions are named, and where that is a call of them.
class UseCounter : public AstVisitor {
public:
  bool VisitCallExpr(CallExpr *E) override {
    if (const FunctionDecl *F = E->getDirectCallee())
      ++Calls[F->getCanonicalDecl()];
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl()))
      ++Names[F->getCanonicalDecl()];
    return true;
  }
  bool VisitMemberExpr(MemberExpr *E) override {
    if (const auto *F = dyn_cast<FunctionDecl>(E->getMemberDecl()))
      ++Names[F->getCanonicalDecl()];
    return true;
  }
  std::map<const FunctionDecl *, unsigned> Calls, Names;
};
} // namespace

std::vector<FileUse>
accel::migrate::updatedFiles(const FunctionDecl *F, const ASTContext &Context) {
  UpdateFinder Finder(Context);
  Finder.TraverseStmt(F->getBody());
  std::vector<FileUse> Result;
  for (const auto &[Use, Path] : Finder.Found)
    Result.push_back({F, Use, Path, /*Writes=*/true, std::nullopt});
  return Result;
}

std::set<const FunctionDecl *>
accel::migrate::outputFunctions(const ProgramIndex &Index) {
  UseCounter Uses;
  std::set<const FunctionDecl *> Result;
  for (const FunctionDecl *F : Index.Functions)
    Uses.TraverseStmt(F->getBody());
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
    const FunctionDecl *Canonical = F->getCanonicalDecl();
    const bool Tensors = llvm::any_of(F->parameters(), [](const ParmVarDecl *P) {
      return holdsTensors(P->getType()) || moduleOf(P->getType());
    });
    std::set<const FunctionDecl *> Seen = {F};
    if (!Tensors && Uses.Calls[Canonical] == Uses.Names[Canonical] &&
        !updatedFiles(F, Index.Context).empty() &&
        leavesNoTrace(F->getBody(), Index, Seen, /*InFunction=*/true))
      Result.insert(Canonical);
  }
  return Result;
}
