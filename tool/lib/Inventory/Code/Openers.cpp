//===- Openers.cpp - Functions that open files as fopen does --------------===//
//
// `FILE *open_file(const char *path, const char *mode)`: what is opened, and
// how, is seen where it is called.
//
//===----------------------------------------------------------------------===//

#include "AstVisitor.h"
#include "ProgramIndex.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Functions whose names stand for something else than a call.
class UseOfNames : public AstVisitor {
public:
  bool VisitCallExpr(CallExpr *E) override {
    if (const FunctionDecl *F = E->getDirectCallee())
      --Named[F->getCanonicalDecl()];
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl()))
      ++Named[F->getCanonicalDecl()];
    return true;
  }
  std::map<const FunctionDecl *, int> Named;
};
} // namespace

void ProgramIndex::findOpeners() {
  for (const FunctionDecl *F : Functions) {
    if (isa<CXXMethodDecl>(F) || F->getNumParams() < 2)
      continue;
    std::vector<const CallExpr *> Opens;
    eachIn<CallExpr>(F->getBody(), [&](const CallExpr *E) {
      const FunctionDecl *Called = E->getDirectCallee();
      if (nameOf(Called) == "fopen" && Called->isExternC() &&
          E->getNumArgs() == 2)
        Opens.push_back(E);
    });
    if (Opens.size() != 1)
      continue;
    std::map<const ValueDecl *, unsigned> Named;
    eachIn<DeclRefExpr>(F->getBody(), [&](const DeclRefExpr *E) {
      ++Named[E->getDecl()];
    });
    auto Parameter = [&](unsigned Arg) {
      const auto *P = dyn_cast_or_null<ParmVarDecl>(
          variableOf(Opens.front()->getArg(Arg)));
      return P && P->getDeclContext() == F && Named[P] == 1 ? P : nullptr;
    };
    const ParmVarDecl *Path = Parameter(0), *Mode = Parameter(1);
    if (Path && Mode)
      Openers[F->getCanonicalDecl()] = {Path->getFunctionScopeIndex(),
                                        Mode->getFunctionScopeIndex(),
                                        Opens.front()};
  }
  if (Openers.empty())
    return;
  UseOfNames Names;
  for (const FunctionDecl *F : Functions)
    Names.TraverseStmt(F->getBody());
  for (auto It = Openers.begin(); It != Openers.end();)
    It = Names.Named[It->first] > 0 ? Openers.erase(It) : std::next(It);
}

const ProgramIndex::Opener *ProgramIndex::openerOf(const CallExpr *Call) const {
  const FunctionDecl *F = Call->getDirectCallee();
  const auto It = F ? Openers.find(F->getCanonicalDecl()) : Openers.end();
  return It != Openers.end() && It->second.Mode < Call->getNumArgs() &&
                 It->second.Path < Call->getNumArgs()
             ? &It->second
             : nullptr;
}
