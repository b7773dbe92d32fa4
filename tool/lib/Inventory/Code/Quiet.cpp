//===- Quiet.cpp - Code that the other processes need not run -------------===//

#include "Quiet.h"

#include "TorchTypes.h"

#include "clang/Basic/SourceManager.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isSeedSequence(const CXXRecordDecl *D) {
  return nameOf(D) == "seed_seq" && isInStd(D);
}

bool accel::migrate::isRandomDevice(const CXXRecordDecl *D) {
  return nameOf(D) == "random_device" && isInStd(D);
}

bool accel::migrate::isEngine(const CXXRecordDecl *D) {
  return nameOf(D).ends_with("_engine") && isInStd(D);
}

bool accel::migrate::drawsOnHost(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  if (!F)
    return false;
  if (!F->getIdentifier()) {
    const auto *M = dyn_cast<CXXMethodDecl>(F);
    return M && M->getOverloadedOperator() == OO_Call && isInStd(M) &&
           (isEngine(M->getParent()) ||
            nameOf(M->getParent()).ends_with("_distribution"));
  }
  static const llvm::StringSet<> C = {"rand",   "random",  "drand48",
                                      "lrand48", "mrand48", "erand48"};
  if (C.count(F->getName()))
    return F->isExternC() || isInStd(F);
  static const llvm::StringSet<> Std = {"shuffle", "sample", "random_shuffle",
                                        "generate_canonical", "discard"};
  return isInStd(F) && Std.count(F->getName());
}

const Expr *accel::migrate::drawnFromDevice(const CallExpr *E) {
  if (drawsOnHost(E))
    for (const Expr *Arg : E->arguments())
      if (isRandomDevice(recordOf(plain(Arg)->getType())) &&
          !isa<CXXOperatorCallExpr>(plain(Arg)))
        return plain(Arg);
  return nullptr;
}

bool accel::migrate::seeds(const FunctionDecl *F) {
  const llvm::StringRef Name = nameOf(F);
  if (Name.empty())
    return false;
  if (Name == "srand" || Name == "srandom" || Name == "srand48")
    return F->isExternC() || isInStd(F);
  if (Name == "seed")
    return isInStd(F);
  return isTorch(F) && (Name == "manual_seed" || Name == "manual_seed_all" ||
                        Name == "set_current_seed");
}

/// A type whose values the training is made of.
static bool isTrainingType(QualType T) {
  if (T.isNull())
    return false;
  if (holdsTensors(T) || moduleOf(T) || optimizerOf(T) || schedulerOf(T) ||
      loaderOf(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  return D && (isEngine(D) || isRandomDevice(D));
}

bool Quiet::function(const FunctionDecl *F) const {
  const auto Bodies = Index.bodiesOf(F);
  if (Bodies.empty()) {
    // Declared by the person, and defined in another file.
    const SourceManager &SM = Index.Context.getSourceManager();
    return F->isImplicit() || F->isDefaulted() || F->isExternC() ||
           isInStd(F) || SM.isInSystemHeader(F->getLocation()) ||
           F->getBuiltinID() != 0;
  }
  return llvm::all_of(Bodies, [&](const FunctionDecl *Body) {
    if (!Index.isOwn(Body))
      return true; // Nothing of the training is given to it.
    auto [It, New] = Known.try_emplace(Body, true);
    if (!New)
      return It->second; // Also ends recursion.
    const bool Result = is(Body->getBody());
    return Known[Body] = Result;
  });
}

bool Quiet::is(const Stmt *S) const {
  if (!S)
    return true;
  if (const auto *E = dyn_cast<Expr>(S)) {
    if (isTrainingType(E->getType()))
      return false;
    if (const auto *Call = dyn_cast<CallExpr>(E)) {
      const FunctionDecl *F = Call->getDirectCallee();
      // What is called may be anything.
      if (!F)
        return false;
      if (drawsOnHost(Call) || seeds(F) || isTorch(F) || !function(F))
        return false;
      const auto *M = dyn_cast<CXXMethodDecl>(F);
      if (M && M->isVirtual() && Index.isOwn(M))
        return false;
      // std::function and its like may hold anything.
      if (M && M->getOverloadedOperator() == OO_Call && isInStd(M) &&
          nameOf(M->getParent()).ends_with("function"))
        return false;
    }
    if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
        Made && !function(Made->getConstructor()))
      return false;
  }
  if (const auto *D = dyn_cast<DeclStmt>(S))
    for (const Decl *Each : D->decls())
      if (const auto *V = dyn_cast<VarDecl>(Each);
          V && isTrainingType(V->getType()))
        return false;
  for (const Stmt *Child : S->children())
    if (!is(Child))
      return false;
  return true;
}
