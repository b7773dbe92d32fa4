//===- Learns.h - What learns -----------------------------------*- C++ -*-===//
//
// Optimizers, schedulers, devices, clipping; backwards and the loops around
// them.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LEARNS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LEARNS_H

#include "Code/Subject.h"
#include "HeldOptimizers.h"
#include "StepBodies.h"

namespace accel::migrate {

/// Optimizers, schedulers, their models, clipping.
class OptimizerFacts : public Subject {
public:
  OptimizerFacts(const Unit &U, Walk &W, const HeldOptimizers &Held)
      : Subject(U, W), Held(Held) {}
  void variable(const clang::VarDecl *V) override;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
  void construct(const clang::CXXConstructExpr *E) override;
  void newObject(const clang::CXXNewExpr *E) override;
  void assigned(const clang::Expr *To, const clang::Expr *Made) override;
  void returned(const clang::ReturnStmt *S) override;
  void templateNamed(const clang::TemplateSpecializationTypeLoc &Loc) override;
  void memberInitialiser(const clang::CXXCtorInitializer *Init) override;
  void end() override;

private:
  /// What is seen of how an optimizer or a scheduler is made.
  struct Making {
    std::vector<TextRange> TypeNames; ///< Where its type is spelled.
    const clang::Expr *First = nullptr; ///< What its constructor is given first.
    const clang::CXXRecordDecl *Class = nullptr;
    bool Understood = true;
  };
  static constexpr char PrepareByHand[] =
      "Nothing has to be done for the results. For gradient accumulation and "
      "fp16, write `accel::AcceleratedOptimizer<…>` in place of the optimizer's "
      "type and call accelerator.prepare(model, optimizer) behind it.";
  const HeldOptimizers &Held;

  Making makingOf(const clang::DeclaratorDecl *V, const clang::Expr *Init);
  void optimizerVariable(const clang::VarDecl *V);
  void optimizerMade(const clang::ValueDecl *Holder,
                     const clang::DeclaratorDecl *Declared,
                     const clang::Expr *Init);
  void optimizerOfDefault(const clang::FieldDecl *Member);
  void optimizersIn(const clang::VarDecl *V);
  const clang::Expr *madeWith(const clang::FieldDecl *Member) const;
  bool isBeforeMain() const;
  static bool namesAnother(const clang::Expr *Init);
  bool callsFactory(const clang::Expr *Init) const;
  void optimizerBeforeMain(const clang::FieldDecl *Member);
  void schedulerMade(const clang::DeclaratorDecl *V, const clang::Expr *Init);
  void strayOptimizer(const clang::Expr *E);
  bool prepareModelsOf(const clang::Expr *Parameters);
  std::optional<std::string> modelIn(const clang::Expr *Parameters);
  bool setUp(OptimizerFact &Fact, const clang::ValueDecl *Optimizer,
             llvm::ArrayRef<const clang::ValueDecl *> Models);
  bool setUpHolder(OptimizerFact &Fact, const clang::ValueDecl *Holder,
                   llvm::ArrayRef<const clang::ValueDecl *> Models,
                   clang::SourceLocation Loc);
  void addedGroup(const clang::CallExpr *E);
  void emplaced(const clang::CXXMemberCallExpr *E);
  const clang::ValueDecl *modelOf(const clang::Expr *Parameters);
  std::vector<const clang::ValueDecl *> modelsGiven(const clang::Expr *Init);
  std::vector<const clang::ValueDecl *> modelsOf(const clang::Expr *Parameters);
  std::vector<const clang::ValueDecl *> modelsOf(const clang::Expr *Parameters,
                                                 OptimizerFact &Fact);
  std::vector<const clang::ValueDecl *>
  listedModels(const clang::Expr *Parameters);
  const clang::CompoundStmt *setUpBlock(const clang::Stmt **Child) const;
};

/// How the device is chosen.
class DeviceFacts : public Subject {
public:
  using Subject::Subject;
  void variable(const clang::VarDecl *V) override;
  void call(const clang::CallExpr *E, const clang::FunctionDecl *F) override;
  void construct(const clang::CXXConstructExpr *E) override;
  void assigned(const clang::Expr *To, const clang::Expr *Made) override;

private:
  void chosen(EditKind Kind, const clang::Expr *E);
  void forwarded(const clang::CallExpr *E);
  void compared(const clang::CXXOperatorCallExpr *E);
  void numbered(const clang::CXXMemberCallExpr *E);
  void numbered(const clang::Expr *Kind, const clang::Expr *Number);
  void staysCudas(clang::SourceLocation Loc, const std::string &What);
  bool isCudasOwn(const clang::NamedDecl *D, clang::SourceLocation Loc);
  const clang::IfStmt *selectionOf(const clang::VarDecl *V);
  std::vector<const clang::Stmt *> choicesOf(const clang::Expr *Init);
};

/// A place that would choose otherwise for the class that an optimizer becomes
/// one of.
struct ExactType {
  clang::SourceLocation Loc;
  std::string Class; ///< As it is printed: "torch::optim::Adam".
  std::string How;   ///< "a specialisation is for"
};

/// All of the unit's own text, each place once.
std::vector<ExactType> findExactTypes(SourceText &Text);

/// Devices that are chosen before main, when there is no accelerator, are chosen
/// again in main.
void addGlobalDevices(const Unit &U);

/// Backwards, training loops, and templates that nobody uses.
class Steps : private Unit {
public:
  explicit Steps(const Unit &U) : Unit(U), Bodies(Index) {}
  void add();

private:
  void addBackward(const BackwardCall &B);
  std::optional<TextRange> lossOf(const clang::CXXMemberCallExpr *Call,
                                  const TextRange &Whole,
                                  BackwardFact &Fact) const;
  std::optional<TextRange> sumOf(llvm::ArrayRef<const clang::Expr *> Losses,
                                 const TextRange &Call,
                                 BackwardFact &Fact) const;
  void addTrainingLoop(const BatchLoop &Loop);
  void addStepElsewhere(const BatchLoop &Loop,
                        const StepBodies::StepPlace &Place);
  void addPlace(const StepBodies::StepPlace &Place);
  /// `Place` says what it is, if not the body of a loop.
  void addStep(const BatchLoop &Loop, const clang::Stmt *Step,
               const clang::FunctionDecl *In,
               const StepBodies::StepPlace *Place = nullptr);
  void keepTrained(std::vector<std::string> &Models, const BatchLoop &Loop,
                   const clang::Stmt *Step) const;
  void prepareWithoutOptimizer(const BatchLoop &Loop,
                               llvm::ArrayRef<const clang::VarDecl *> Models);
  bool prepareGlobals(const clang::VarDecl *Optimizer,
                      llvm::ArrayRef<const clang::VarDecl *> Models,
                      const clang::FunctionDecl *Trains);
  void addGlobals();
  void checkTemplates();

  const StepBodies Bodies;
  std::set<const clang::Stmt *> StepPlaces;
  /// No optimizer's model is seen: the models in Program.Optimizers are those of loops.
  bool Prepares = false;
};

/// The models whose parameters an optimizer is given in `Parameters`, where
/// that is a list of several models', or of some of a model's: in the
/// expression, and in what the statements `Before` it put into the variables
/// that it names. In the order in which they are named. A model that is a part
/// of another one counts as that.
std::vector<const clang::ValueDecl *>
modelsInList(const clang::Expr *Parameters,
             llvm::ArrayRef<const clang::Stmt *> Before);

/// Behind `From`, or from the beginning of the block where that is null: the last
/// statement before a training that makes one of the models, moves it, or adds
/// parameters to the optimizer; or `From`.
const clang::Stmt *lastSetUp(const clang::CompoundStmt *Block,
                             const clang::Stmt *From,
                             const clang::ValueDecl *Optimizer,
                             llvm::ArrayRef<const clang::ValueDecl *> Models,
                             const ProgramIndex &Index);

/// Notes the block in which something is prepared, and how many trainings come before
/// the statement `Until`: what has both in common is prepared together.
void setGroup(OptimizerFact &Fact, const clang::CompoundStmt *Block,
              const clang::Stmt *Until, const Unit &U);

/// How code of `In` names what `Place` holds where a reference, a holder or a
/// shared_ptr is taken.
std::string objectOf(const clang::ValueDecl *Place,
                     const clang::FunctionDecl *In);

/// The namespaces of a variable that `In` is not in: `game::`.
std::string scopesOf(const clang::VarDecl *V, const clang::FunctionDecl *In);

/// Sets up where a function comes to the first statement that trains, or reads
/// batches; false where there is no place before it.
bool setUpBeforeTraining(OptimizerFact &Fact, const clang::FunctionDecl *In,
                         const Unit &U);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LEARNS_H
