//===- Taker.h - Taking the inventory of one unit ---------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_TAKER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_TAKER_H

#include "FactFinder.h"
#include "Interpreter.h"

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace accel::migrate {

/// Whether something was seen that stops the migration.
inline bool refuses(const TrainingProgram &Program) {
  return llvm::any_of(Program.Findings, [](const Finding &F) {
    return F.Level == Severity::Refusal;
  });
}

/// Takes the inventory of one unit: the facts of its functions, one after the
/// other (Inventory.cpp), what the interpreter found in those that run batches
/// (EffectFacts.cpp), and what can only be said of the program as a whole
/// (ProgramChecks.cpp).
class Taker {
public:
  Taker(clang::ASTContext &Context, const PlanOptions &Options,
        const ProgramIndex::LoaderClasses &Unsplit)
      : Text(Context, Options), Index(Context, Unsplit),
        Differs(Index, Differing::Clock, /*Decides=*/true),
        Functions(Text, Program.Functions) {
    Index.OfMainProcess = outputFunctions(Index);
  }

  TrainingProgram take();
  /// Loaders that the training could do with in whole batches, though not in
  /// parts.
  ProgramIndex::LoaderClasses WantUnsplit;

private:
  bool refused() const { return refuses(Program); }
  void takeFunction(const clang::FunctionDecl *F, TrainingProgram &Into);
  void addEffects(const clang::FunctionDecl *F, const Effects &E,
                  TrainingProgram &Into);
  void addBackward(const Effects::Backward &B, TrainingProgram &Into,
                   std::vector<BackwardFact> &List);
  void addWholeLoop(const Effects::Loop &Loop, TrainingProgram &Into);
  void addParallel(const clang::CallExpr *Call, FunctionId In,
                   TrainingProgram &Into);
  /// Whether the processes share out something in the program.
  bool sharesWork() const;
  void settleWholeLoops();
  void checkOutside(const BackwardCall &B);
  void addReads(const Effects &E, TrainingProgram &Into);
  void addParts(const Effects::Loop &Loop, FunctionId In,
                const std::set<const clang::DeclRefExpr *> &StaysWhole,
                TrainingProgram &Into);
  void addLeftLoop(const clang::FunctionDecl *F, const BatchLoop &Loop,
                   TrainingProgram &Into);
  void merge(TrainingProgram &&Part);
  void takeMissing();
  void checkLoops();
  void checkProgram();
  void checkLoaders();
  void checkSideEffects();
  bool migratedAlready() const;
  std::optional<TextRange> editable(clang::SourceRange Range,
                                    TrainingProgram &Into);
  /// `Object` and what is behind it in `Whole`.
  bool split(const clang::Expr *Object, const clang::Expr *Whole,
             TextRange &ObjectRange, TextRange &Tail, TrainingProgram &Into);
  void refuse(TrainingProgram &Into, llvm::StringRef Id,
              clang::SourceLocation Loc, std::string Message,
              std::string Remedy = "") {
    Into.Findings.push_back(
        Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
  }

  TrainingProgram Program;
  SourceText Text;
  ProgramIndex Index;
  Differing Differs;
  FunctionTable Functions;
  /// Calls of backward that the analysis came to.
  std::set<const clang::Expr *> Followed;
  /// Calls of squeeze() on parts of a batch, and on tensors in full.
  std::set<const clang::Expr *> Squeezed, SqueezedWhole;
  /// What is known of text that several callers run, by its place.
  std::map<std::pair<std::string, unsigned>, Placement> LossAt;
  std::map<std::pair<std::string, unsigned>, std::pair<Placement, bool>> ReadAt;
  std::vector<HostDraw> DatasetDraws, OtherDraws;
  std::vector<FileUse> Files;
};

/// What to do about training that every process runs in full.
inline constexpr char WholeRemedy[] =
    "Nothing has to be done: the results are those of one device, and it takes "
    "as long as on one.";

template <typename T> void append(std::vector<T> &To, std::vector<T> &From) {
  To.insert(To.end(), std::make_move_iterator(From.begin()),
            std::make_move_iterator(From.end()));
}

} // namespace accel::migrate

#endif
