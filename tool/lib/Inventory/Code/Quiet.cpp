//===- Quiet.cpp - Code that the other processes need not run -------------===//

#include "Quiet.h"

#include "TorchTypes.h"

#include "clang/Basic/SourceManager.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isSeedSequence(const CXXRecordDecl *D) {
  return stdNameOf(D) == "seed_seq";
}

bool accel::migrate::isRandomDevice(const CXXRecordDecl *D) {
  return stdNameOf(D) == "random_device";
}

bool accel::migrate::isEngine(const CXXRecordDecl *D) {
  return stdNameOf(D).ends_with("_engine");
}

bool accel::migrate::drawsOnHost(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  if (const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
      M && M->getOverloadedOperator() == OO_Call)
    return isEngine(M->getParent()) ||
           stdNameOf(M->getParent()).ends_with("_distribution");
  static const llvm::StringSet<> C = {"rand",   "random",  "drand48",
                                      "lrand48", "mrand48", "erand48"};
  if (C.count(nameOf(F)))
    return F->isExternC() || isInStd(F);
  static const llvm::StringSet<> Std = {"shuffle", "sample", "random_shuffle",
                                        "generate_canonical", "discard"};
  return Std.count(stdNameOf(F));
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
  static const llvm::StringSet<> C = {"srand", "srandom", "srand48"};
  if (C.count(nameOf(F)))
    return F->isExternC() || isInStd(F);
  static const llvm::StringSet<> Torch = {"manual_seed", "manual_seed_all",
                                          "set_current_seed"};
  return stdNameOf(F) == "seed" || Torch.count(torchNameOf(F));
}

/// A type whose values the training is made of.
static bool isTrainingType(QualType T) {
  return holdsTensors(T) || moduleOf(T) || optimizerOf(T) || schedulerOf(T) ||
         loaderOf(T) || isEngine(recordOf(T)) || isRandomDevice(recordOf(T));
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

/// Whether a statement or an expression has to do with the training, whatever
/// its parts have.
bool Quiet::isOfTraining(const Stmt *S) const {
  if (const auto *D = dyn_cast<DeclStmt>(S))
    return llvm::any_of(D->decls(), [](const Decl *Each) {
      const auto *V = dyn_cast<VarDecl>(Each);
      return V && isTrainingType(V->getType());
    });
  const auto *E = dyn_cast<Expr>(S);
  if (!E || isTrainingType(E->getType()))
    return E;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    return !function(Made->getConstructor());
  const auto *Call = dyn_cast<CallExpr>(E);
  if (!Call)
    return false;
  const FunctionDecl *F = Call->getDirectCallee();
  // What is called may be anything.
  if (!F || drawsOnHost(Call) || seeds(F) || isTorch(F) || !function(F))
    return true;
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (M && M->isVirtual() && Index.isOwn(M))
    return true;
  // std::function and its like may hold anything.
  return M && M->getOverloadedOperator() == OO_Call &&
         stdNameOf(M->getParent()).ends_with("function");
}

bool Quiet::is(const Stmt *S) const {
  return !existsIn(S, [&](const Stmt *Part) { return isOfTraining(Part); });
}
