//===- Taker.h - Taking the inventory of one unit ---------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_TAKER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_TAKER_H

#include "Batches.h"
#include "FactFinder.h"

#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

/// Takes the inventory of one unit. Most facts are found function by function
/// (FactFinder.h); those below need all functions.
class Taker {
public:
  Taker(clang::ASTContext &Context, const PlanOptions &Options)
      : MainElsewhere(Options.MainElsewhere), Text(Context, Options),
        Index(Context),
        Differs(Index, Differing::Clock, /*Decides=*/true), Cuts(Index),
        Functions(Text, Program.Functions) {
    Index.OfMainProcess = outputFunctions(Index);
  }

  TrainingProgram take();

private:
  bool migratedAlready() const;
  void takeMissing();
  void takeFunction(const clang::FunctionDecl *F, TrainingProgram &Into);
  void merge(TrainingProgram &&Part);

  // Steps.cpp: what learns.
  void addBackward(const BackwardCall &B);
  void addTrainingLoop(const BatchLoop &Loop);
  void checkTemplates();

  // Entering.cpp: what enters.
  void addBatches();
  void noteLoops(llvm::ArrayRef<Batch> Batches);

  // Evaluation.cpp, Memory.cpp: what leaves.
  void addGathers(const BatchLoop &Loop);
  void addMemory(const clang::FunctionDecl *F);

  // ProgramChecks.cpp: what can only be said of the program as a whole.
  void checkProgram();
  void checkGlobals();
  void checkSideEffects();

  /// The range of `E`, or a finding that says why it cannot be changed.
  std::optional<TextRange> editable(clang::SourceRange Range);
  void say(llvm::StringRef Id, clang::SourceLocation Loc, std::string Message,
           std::string Remedy = "") {
    Program.Findings.push_back(
        Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
  }

  const bool MainElsewhere;
  TrainingProgram Program;
  SourceText Text;
  ProgramIndex Index;
  Differing Differs;
  Cut Cuts;
  FunctionTable Functions;
  std::vector<HostDraw> DatasetDraws, OtherDraws;
  std::vector<FileUse> Files;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_TAKER_H
