//===- FactFinder.h - What a function sets up, prints and saves -*- C++ -*-===//
//
// One walk over a function's body; each subject has its own source.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H

#include "Cut.h"
#include "Differing.h"
#include "FileOrder.h"
#include "FunctionTable.h"
#include "ProgramIndex.h"
#include "SourceText.h"

#include <set>

namespace accel::migrate {

struct HostDraw {
  const clang::ValueDecl *Generator = nullptr;
  const clang::Expr *Call = nullptr;
};

class FactFinder {
public:
  FactFinder(SourceText &Text, const ProgramIndex &Index,
             const Differing &Differs, const Cut &Cuts,
             FunctionTable &Functions, TrainingProgram &Program)
      : Text(Text), Index(Index), Differs(Differs), Cuts(Cuts),
        Functions(Functions), Program(Program), Context(Index.Context) {}

  void run(const clang::FunctionDecl *F);

  // Called by the walk.
  void variable(const clang::VarDecl *V);
  void call(const clang::CallExpr *E);
  void construct(const clang::CXXConstructExpr *E);
  void name(const clang::DeclRefExpr *E);

  /// A condition, and what it decides about.
  void decision(const clang::Stmt *S, const clang::Expr *Condition);
  void range(const clang::CXXForRangeStmt *S);
  /// A field that is initialised where it is declared; `Early`: objects of the
  /// class may be made before main.
  void field(const clang::FieldDecl *F, const clang::CXXRecordDecl *Owner,
             bool Early);
  /// What a global variable's initialiser does before main.
  void global(const clang::VarDecl *V);
  void newObject(const clang::CXXNewExpr *E);
  void assignment(const clang::BinaryOperator *E);
  void returned(const clang::ReturnStmt *S);
  void templateNamed(const clang::TemplateSpecializationTypeLoc &Loc);
  /// Draws from the host's generators (null: not known from which), in data
  /// sets and elsewhere.
  std::vector<HostDraw> DatasetDraws, OtherDraws;
  /// Files that are opened.
  std::vector<FileUse> Files;

  /// Statements that need no further look.
  bool skips(const clang::Stmt *S) const { return Consumed.count(S) != 0; }

  /// From the function's body to the statement that is being visited.
  std::vector<const clang::Stmt *> Path;
  std::vector<const clang::LambdaExpr *> Lambdas;

private:
  // OptimizerFacts.cpp
  void optimizerVariable(const clang::VarDecl *V);
  void schedulerVariable(const clang::VarDecl *V);
  void memberInitialiser(const clang::CXXCtorInitializer *Init);
  void assigned(const clang::Expr *To, const clang::Expr *Made);
  void optimizerMade(const clang::ValueDecl *Holder,
                     const clang::DeclaratorDecl *Declared,
                     const clang::Expr *Init);
  void optimizerOfDefault(const clang::FieldDecl *Member);
  void schedulerMade(const clang::DeclaratorDecl *V, const clang::Expr *Init);
  void strayOptimizer(const clang::Expr *E);
  void addedGroup(const clang::CallExpr *E);
  struct Making;
  Making makingOf(const clang::DeclaratorDecl *V, const clang::Expr *Init);
  std::string modelOf(const clang::Expr *Parameters,
                      const clang::ValueDecl *&Model);
  std::optional<LinePoint> setUpPoint(const clang::ValueDecl *Optimizer,
                                      const clang::ValueDecl *Model);
  const clang::CompoundStmt *setUpBlock(const clang::Stmt **Child) const;

  // DeviceFacts.cpp
  void deviceVariable(const clang::VarDecl *V);
  void deviceCall(const clang::CallExpr *E);
  void deviceObject(const clang::Expr *E);
  const clang::IfStmt *selectionOf(const clang::VarDecl *V);

  // PrintFacts.cpp
  void printCall(const clang::CallExpr *E, const clang::FunctionDecl *F);
  void printStream(const clang::DeclRefExpr *E);
  bool isFarewell() const;
  void input(const clang::DeclRefExpr *E);
  void inputCall(const clang::CallExpr *E, const clang::FunctionDecl *F);
  void printToFile(const clang::CallExpr *E, const clang::FunctionDecl *F);
  std::optional<TextRange> expansion(const clang::Expr *E);

  // FileFacts.cpp
  void save(const clang::CallExpr *E);
  std::string openMode(const clang::Expr *Mode) const;
  void fileCall(const clang::CallExpr *E, const clang::FunctionDecl *F);
  void openStream(const clang::Expr *E, const clang::CXXRecordDecl *D,
                  llvm::ArrayRef<const clang::Expr *> Args);
  void file(const clang::Expr *Use, const clang::Expr *Path, bool Writes);
  void command(const clang::CallExpr *E);
  void mainPath(const clang::Expr *Use, const clang::Expr *Path);
  clang::SourceRange written(const clang::Expr *E);

  // OutputFacts.cpp
  void outputCall(const clang::CallExpr *E, const clang::FunctionDecl *F);
  bool guard(const clang::CallExpr *E, const std::string &What);
  const clang::Stmt *statementOf(const clang::CallExpr *E) const;

  // Decisions.cpp
  void differingArgument(const clang::Expr *E, const clang::FunctionDecl *F,
                         llvm::ArrayRef<const clang::Expr *> Args);

  // Randomness.cpp
  void hostDraw(const clang::CallExpr *E);
  void seed(const clang::Expr *Whole, const clang::Expr *Seed);
  void seedField(const clang::FieldDecl *F, const clang::CXXRecordDecl *Owner,
                 bool Early);

  // Hazards.cpp
  void hazardousCall(const clang::CallExpr *E, const clang::FunctionDecl *F);
  void hazardousObject(const clang::CXXConstructExpr *E);
  void threadStarts(const clang::Expr *E, llvm::ArrayRef<const clang::Expr *> Args);

  FunctionId here();
  /// Whether what is visited runs where a data set loads a sample.
  bool inSamples() const;
  void takeEarly(TrainingProgram &&Found, const clang::ValueDecl *D, bool Early);
  /// The innermost block around what is visited, and the statement in it.
  const clang::CompoundStmt *block(const clang::Stmt **Child = nullptr) const;
  bool inLoop() const;
  /// The range, or a finding that says why there is none.
  std::optional<TextRange> editable(clang::SourceRange Range);
  std::optional<TextRange> nameOf(const clang::Expr *Callee);
  void refuse(llvm::StringRef Id, clang::SourceLocation Loc,
              std::string Message, std::string Remedy = "");
  void problem(clang::SourceLocation Loc);

  SourceText &Text;
  const ProgramIndex &Index;
  const Differing &Differs;
  const Cut &Cuts;
  FunctionTable &Functions;
  TrainingProgram &Program;
  clang::ASTContext &Context;
  const clang::FunctionDecl *Function = nullptr;
  /// The constructor's initialiser that is visited.
  const clang::Expr *Initialiser = nullptr;
  std::set<const clang::Stmt *> Consumed;
};

/// Whether an expression, or a function's body (`InFunction`), may be evaluated
/// on one process alone: it changes nothing that the program sees, but files,
/// and draws nothing.
bool leavesNoTrace(const clang::Stmt *S, const ProgramIndex &Index,
                   std::set<const clang::FunctionDecl *> &Seen,
                   bool InFunction);

/// Whether a stream's mode reads, or writes; both where it is not known.
void modeOf(const clang::Expr *Mode, const clang::ASTContext &Context,
            bool &Reads, bool &Writes);

/// Files that a function opens to read and to write them.
std::vector<FileUse> updatedFiles(const clang::FunctionDecl *F,
                                  const clang::ASTContext &Context);
/// The functions of the person's own that do so and nothing else that the
/// program sees: canonical declarations.
std::set<const clang::FunctionDecl *>
outputFunctions(const ProgramIndex &Index);

/// How code of `In` names what `Place` holds where a reference, a holder or a
/// shared_ptr is taken.
std::string objectOf(const clang::ValueDecl *Place,
                     const clang::FunctionDecl *In);

/// `torch::kCUDA`, `torch::Device(torch::kCUDA, 1)`, `"cuda:0"`.
enum class DeviceLiteral { None, Cpu, Cuda };
DeviceLiteral deviceLiteral(const clang::Expr *E);
/// Whether code reads a clock or a random device.
bool drawsPerProcess(const clang::Stmt *S);
/// std::ofstream, std::ifstream, std::fstream.
bool isFileStream(const clang::CXXRecordDecl *D);
/// A call of torch::cuda::is_available().
bool asksForCuda(const clang::Expr *E);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_FACTFINDER_H
