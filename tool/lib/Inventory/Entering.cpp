//===- Entering.cpp - What enters: the batches of each training loop ------===//

#include "Taker.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

void Taker::addBatches() {
  const std::vector<Batch> Batches = findBatches(Index, Cuts, Text);
  // Points that are made of a batch are shared out with it.
  for (const bool Points : {false, true}) {
    std::set<const Expr *> Shared;
    for (const Batch &B : Batches) {
      const std::optional<TextRange> R = editable(B.E->getSourceRange());
      if (!R || B.Points != Points || (Points && Cuts.in(B.E)))
        continue;
      Shared.insert(B.E);
      Program.Batches.push_back({Functions.at(B.E->getExprLoc(), B.In), *R});
    }
    Cuts.add(Shared);
  }
  noteWholeLoops(Batches);
}

/// Says of each training what is shared out in it; of one in which nothing is
/// found, that all processes do all of it.
void Taker::noteWholeLoops(llvm::ArrayRef<Batch> Batches) {
  auto IsIn = [&](const Stmt *Loop, SourceLocation At) {
    At = Text.SM.getFileLoc(At);
    return !Text.SM.isBeforeInTranslationUnit(
               At, Text.SM.getFileLoc(Loop->getBeginLoc())) &&
           !Text.SM.isBeforeInTranslationUnit(
               Text.SM.getFileLoc(Loop->getEndLoc()), At);
  };
  // A lambda before the loop may read what the loop makes.
  auto Reads = [&](const Stmt *Loop) {
    return llvm::any_of(Batches, [&](const Batch &B) {
      return IsIn(Loop, B.ReadAt) || IsIn(Loop, B.E->getExprLoc());
    });
  };
  for (const auto &[Loop, Facts] : Index.Loops) {
    if (!Facts.Training || !Text.mayEdit(Loop->getBeginLoc()) ||
        Facts.HasLoader || Reads(Loop))
      continue;
    // What a function that it calls reads is shared out there.
    if (llvm::any_of(Batches, [&](const Batch &B) { return B.In != Facts.In; }))
      continue;
    say("ACL0175", Loop->getBeginLoc(),
        "every process runs this training loop in full: no batch is seen that "
        "a model reads in it",
        "Nothing has to be done: the results are those of one device, and it "
        "takes as long. To share the work, give the model "
        "`accelerator.distribute(batch)`.");
  }
}
