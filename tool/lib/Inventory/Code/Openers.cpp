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
  // Functions whose names stand for something else than a call.
  std::map<const FunctionDecl *, int> Named;
  for (const FunctionDecl *F : Functions)
    eachIn<Expr>(F->getBody(), [&](const Expr *E) {
      if (const FunctionDecl *Called = calleeOf(E))
        --Named[Called->getCanonicalDecl()];
      else if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
        if (const auto *Name = dyn_cast<FunctionDecl>(Ref->getDecl()))
          ++Named[Name->getCanonicalDecl()];
    });
  for (auto It = Openers.begin(); It != Openers.end();)
    It = Named[It->first] > 0 ? Openers.erase(It) : std::next(It);
}

const ProgramIndex::Opener *ProgramIndex::openerOf(const CallExpr *Call) const {
  const FunctionDecl *F = Call->getDirectCallee();
  const auto It = F ? Openers.find(F->getCanonicalDecl()) : Openers.end();
  return It != Openers.end() && It->second.Mode < Call->getNumArgs() &&
                 It->second.Path < Call->getNumArgs()
             ? &It->second
             : nullptr;
}
