//===- SplitBatches.cpp - Where a batch that no loader makes is split ---===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// The variables to split, and where: directly before the model first reads
/// one of them.
std::optional<LoopPlan> Interpreter::planShard(const CompoundStmt *Body,
                                               Effects &Whole) {
  const SourceManager &SM = Context.getSourceManager();
  bool Good = true;
  auto Refuse = [&](llvm::StringRef Id, SourceLocation Loc,
                    std::string Message, std::string Remedy) {
    Whole.refuse(Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
    Good = false;
  };
  for (const Finding &F : Whole.UnnamedBatches) {
    Whole.refuse(F);
    Good = false;
  }
  if (Whole.BatchReads.empty() || !Whole.FirstModelRead) {
    if (Good)
      Refuse("ACL0118", Body->getBeginLoc(),
             "no tensor of a batch is seen that a model reads in this loop",
             "Split the batch with accelerator.shard_batch(x) where it is "
             "complete.");
    return std::nullopt;
  }
  for (const VarDecl *V : Whole.BatchReads) {
    const std::string Name = "'" + V->getNameAsString() + "'";
    const bool Inside =
        V->hasLocalStorage() && !isa<ParmVarDecl>(V) &&
        SM.isBeforeInTranslationUnit(Body->getBeginLoc(), V->getLocation()) &&
        SM.isBeforeInTranslationUnit(V->getLocation(), Body->getEndLoc());
    if (!Inside) {
      Refuse("ACL0118", V->getLocation(),
             Name + " is read by the training step but made outside of the "
                    "loop, so that it cannot be split anew in each pass",
             "Copy the complete batch into a variable of the loop body, and "
             "split that with x = accelerator.shard_batch(x).");
      continue;
    }
    if (!isTensor(V->getType()) || V->getType()->isReferenceType() ||
        V->getType().isConstQualified()) {
      Refuse("ACL0119", V->getLocation(),
             Name + " is read by the training step but cannot be assigned to, "
                    "so that it cannot be split",
             "Make it a torch::Tensor that is not const.");
      continue;
    }
    if (!SM.isBeforeInTranslationUnit(V->getLocation(),
                                      Whole.FirstModelRead->getBeginLoc()))
      Refuse("ACL0119", V->getLocation(),
             Name + " is made after the model has read the batch, and would "
                    "have to be split together with it",
             "Make it before the model is called.");
  }
  if (!Good)
    return std::nullopt;
  LoopPlan P;
  P.Kind = LoopPlan::Shard;
  P.At = Whole.FirstModelRead;
  P.Variables = Whole.BatchReads;
  return P;
}
