//===- Hazards.cpp - What cannot be migrated yet --------------------------===//

#include "FactFinder.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

static constexpr char DifferentSeed[] =
    "the seed differs between processes, which would then draw different "
    "batches";
static constexpr char SeedRemedy[] =
    "Seed with a constant, or with a value that is read from the command "
    "line.";

static bool isRandomDevice(const CXXRecordDecl *D) {
  return D && D->getIdentifier() && D->getName() == "random_device" &&
         isInStd(D);
}

/// std::mt19937 and the like.
static bool isEngine(const CXXRecordDecl *D) {
  return D && D->getIdentifier() && isInStd(D) &&
         D->getName().ends_with("_engine");
}

bool accel::migrate::drawsPerProcess(const Stmt *S) {
  if (!S)
    return false;
  if (const auto *C = dyn_cast<CallExpr>(S))
    if (const FunctionDecl *F = C->getDirectCallee()) {
      if (F->getIdentifier() &&
          (F->getName() == "now" || F->getName() == "time" ||
           F->getName() == "clock" || F->getName() == "getpid"))
        return true;
      if (const auto *M = dyn_cast<CXXMethodDecl>(F))
        if (isRandomDevice(M->getParent()))
          return true;
    }
  if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
    if (isRandomDevice(Made->getConstructor()->getParent()))
      return true;
  for (const Stmt *Child : S->children())
    if (drawsPerProcess(Child))
      return true;
  return false;
}

/// A method that a data loader calls for a sample or a batch.
static bool loadsSamples(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && M->getIdentifier() &&
         (M->getName() == "get" || M->getName() == "get_batch") &&
         isOrDerives(M->getParent(), "torch::data::datasets::BatchDataset");
}

/// Random numbers of the host: their generators are not those of LibTorch.
void FactFinder::hostRandom(const Expr *E, bool Seeds, bool Draws) {
  if (!Text.mayEdit(E->getExprLoc()))
    return;
  if (Draws)
    (loadsSamples(Function) ? DatasetDraw : OtherDraw) = E;
  if (loadsSamples(Function)) {
    if (Draws || Seeds)
      refuse("ACL0153", E->getExprLoc(),
             "the data set draws random numbers that are not LibTorch's: each "
             "process draws for its own samples, so that they are distributed "
             "as before but are not the same numbers",
             "Draw with torch::rand where the numbers must be the same.");
    return;
  }
  if (Seeds && drawsPerProcess(E))
    refuse("ACL0136", E->getExprLoc(), DifferentSeed, SeedRemedy);
}

void FactFinder::hazardousObject(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  if (E->getConstructor()->isCopyOrMoveConstructor())
    return;
  if (isRandomDevice(D) && !loadsSamples(Function) &&
      Text.mayEdit(E->getExprLoc()))
    return refuse("ACL0136", E->getExprLoc(), DifferentSeed, SeedRemedy);
  if (isEngine(D))
    hostRandom(E, /*Seeds=*/true, /*Draws=*/false);
}

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
  if (!F->getIdentifier()) {
    // distribution(engine), engine()
    if (const auto *M = dyn_cast<CXXMethodDecl>(F);
        M && isInStd(M) && M->getParent()->getIdentifier() &&
        (isEngine(M->getParent()) ||
         M->getParent()->getName().ends_with("_distribution")))
      hostRandom(E, /*Seeds=*/false, /*Draws=*/true);
    return;
  }
  const llvm::StringRef Name = F->getName();
  if (Name == "srand" || (Name == "seed" && isInStd(F)))
    return hostRandom(E, /*Seeds=*/true, /*Draws=*/false);
  if ((Name == "rand" && F->isExternC()) || (Name == "shuffle" && isInStd(F)))
    return hostRandom(E, /*Seeds=*/false, /*Draws=*/true);
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
        !countsOrLoops())
      return refuse("ACL0140", Loc,
                    "the loader is read through its iterators",
                    "Write `for (auto& batch : *loader)`.");
    return;
  }
  if (Name == "manual_seed" && drawsPerProcess(E))
    return refuse("ACL0136", Loc, DifferentSeed, SeedRemedy);
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
