//===- Hazards.cpp - What cannot be migrated yet --------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

void FactFinder::hazardousCall(const CallExpr *E, const FunctionDecl *F) {
  const SourceLocation Loc = E->getExprLoc();
  if (!F->getIdentifier())
    return;
  const llvm::StringRef Name = F->getName();
  if ((F->isExternC() || F->getDeclContext()->isTranslationUnit()) &&
      (Name == "fork" || Name.starts_with("MPI_") || Name.starts_with("nccl")))
    return refuse("ACL0105", Loc,
                  "the program is distributed already: it calls " + Name.str(),
                  "Take its own distribution out first.");
  if (!isTorch(F)) {
    if (Name == "async" && isInStd(F))
      refuse("ACL0135", Loc,
             "the program starts work in another thread; the processes would "
             "have to meet in the same order in all of them",
             "Train without threads of your own.");
    return;
  }
  const std::string Qualified = qualifiedName(F);
  if (Name == "data_parallel" || Name == "replicate")
    return refuse("ACL0105", Loc,
                  "the program is distributed already: it calls " + Qualified,
                  "Take its own distribution out first.");
  if (Name == "grad" && Qualified == "torch::autograd::grad")
    return refuse("ACL0133", Loc,
                  "gradients are calculated with torch::autograd::grad, which "
                  "sees this process's part of the batch only",
                  "Average them with accelerator.reduce(g, torch::kMean) where "
                  "they are used, by hand.");
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
    if (isTensor(Member->getObjectType()) &&
        (Name == "grad" || Name == "mutable_grad"))
      return refuse("ACL0132", Loc,
                    "a gradient is read or changed by hand",
                    "Between accelerator.backward(loss) and optimizer.step() "
                    "gradients are those of the whole batch; migrate by hand "
                    "if that is what is needed here.");
    if ((Name == "begin" || Name == "end") &&
        loaderOf(Member->getImplicitObjectArgument()->getType()))
      return refuse("ACL0140", Loc,
                    "the loader is read through its iterators",
                    "Write `for (auto& batch : *loader)`.");
    return;
  }
  if (Name == "manual_seed" || Name == "seed") {
    class Clock {
    public:
      static bool in(const Stmt *S) {
        if (!S)
          return false;
        if (const auto *C = dyn_cast<CallExpr>(S))
          if (const FunctionDecl *F = C->getDirectCallee()) {
            if (F->getIdentifier() &&
                (F->getName() == "now" || F->getName() == "time" ||
                 F->getName() == "clock" || F->getName() == "getpid"))
              return true;
            if (const auto *M = dyn_cast<CXXMethodDecl>(F))
              if (M->getParent()->getIdentifier() &&
                  M->getParent()->getName() == "random_device")
                return true;
          }
        for (const Stmt *Child : S->children())
          if (in(Child))
            return true;
        return false;
      }
    };
    if (Clock::in(E))
      refuse("ACL0136", Loc,
             "the seed differs between processes, which would then draw "
             "different batches",
             "Seed with a constant, or with a value that is read from the "
             "command line.");
    return;
  }
  if (Name.starts_with("set_autocast_enabled") || Name == "set_autocast_dtype")
    refuse("ACL0143", Loc, "the program switches autocast by hand",
           "Take it out, and choose the precision with "
           "AcceleratorOptions().mixed_precision(…).");
}

/// A handler that lets the program go on leaves the other processes waiting.
void FactFinder::tryBlock(const CXXTryStmt *S) {
  if (!Index.holdsBatches(S->getTryBlock()))
    return;
  for (unsigned I = 0; I < S->getNumHandlers(); ++I) {
    const Stmt *Block = S->getHandler(I)->getHandlerBlock();
    const auto *Body = cast<CompoundStmt>(Block);
    const Stmt *Last = Body->body_empty() ? nullptr : Body->body_back();
    bool Ends = false;
    if (const auto *E = dyn_cast_or_null<Expr>(Last)) {
      const FunctionDecl *F = calleeOf(plain(E));
      Ends = isa<CXXThrowExpr>(plain(E)) || (F && F->isNoReturn());
    }
    Ends |= Last && isa<ReturnStmt>(Last) && Function->isMain() &&
            Lambdas.empty();
    if (!Ends)
      refuse("ACL0134", S->getHandler(I)->getBeginLoc(),
             "an exception in the training is caught here and the program goes "
             "on, while the other processes wait for this one",
             "Let the exception end the program: `throw;`, or `return 1;` in "
             "main.");
  }
}
