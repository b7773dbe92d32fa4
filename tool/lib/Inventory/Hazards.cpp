//===- Hazards.cpp - What cannot be migrated yet --------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether an iterator of a loader that is visited belongs to a loop over all of
/// its batches, or to `std::distance`, which counts them: there are as many on
/// each process as on one device.
bool FactFinder::countsOrLoops() const {
  for (size_t I = Path.size(); I-- > 0;) {
    if (const auto *Call = dyn_cast<CallExpr>(Path[I]))
      if (const FunctionDecl *F = Call->getDirectCallee();
          F && F->getIdentifier() && F->getName() == "distance" && isInStd(F))
        return true;
    if (isa<CompoundStmt>(Path[I]))
      return false;
    if (isa<ForStmt>(Path[I]))
      return loaderOfLoop(Path[I]) != nullptr;
  }
  return false;
}

void FactFinder::hazardousCall(const CallExpr *E, const FunctionDecl *F) {
  const SourceLocation Loc = E->getExprLoc();
  if (!F->getIdentifier())
    return;
  const llvm::StringRef Name = F->getName();
  // A handler that sets a flag does so at another moment on each process.
  if ((Name == "signal" || Name == "sigaction") && Text.mayEdit(Loc) &&
      (F->isExternC() || isInStd(F)) && E->getNumArgs() >= 2) {
    if (const auto *Handler = dyn_cast<DeclRefExpr>(bare(E->getArg(1))))
      if (const auto *H = dyn_cast<FunctionDecl>(Handler->getDecl());
          H && Index.isOwn(H))
        refuse("ACL0221", Loc,
               "a signal is handled by '" + H->getNameAsString() +
                   "', which runs at another moment on each process",
               "Let the signal end the process; the launcher ends the others.");
    return;
  }
  // std::getline(std::cin, line), std::scanf
  if (Name == "scanf" && (F->isExternC() || isInStd(F)) && Text.mayEdit(Loc))
    return refuse("ACL0220", Loc,
                  "the standard input is read, which the processes do not share",
                  "Read it from the command line or a file.");
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
    if ((Name == "begin" || Name == "end") &&
        loaderOf(Member->getImplicitObjectArgument()->getType()) &&
        !countsOrLoops() &&
        !isOnlyLookedInto(variableOf(Member->getImplicitObjectArgument())))
      return refuse("ACL0140", Loc,
                    "the loader is read through its iterators",
                    "Write `for (auto& batch : *loader)`.");
    return;
  }
  if (Name.starts_with("set_autocast_enabled") || Name == "set_autocast_dtype")
    refuse("ACL0143", Loc, "the program switches autocast by hand",
           "Take it out, and choose the precision with "
           "AcceleratorOptions().mixed_precision(…).");
}
