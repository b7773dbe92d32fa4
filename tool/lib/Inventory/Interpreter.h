//===- Interpreter.h - Follows values through a training loop ---*- C++ -*-===//
//
// A small abstract interpretation: statements in order, branches joined, loops
// until nothing changes. Values are placements (Placement.h). What the program
// does with values that differ between processes is recorded as effects.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_INTERPRETER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_INTERPRETER_H

#include "Differing.h"
#include "ProgramIndex.h"
#include "SourceText.h"
#include "Value.h"

#include "llvm/ADT/MapVector.h"

#include <deque>
#include <functional>
#include <map>

namespace accel::migrate {

/// A state that is kept from batch to batch, and the dimension of its samples.
using StateVariable = std::pair<const clang::ValueDecl *, unsigned>;

/// What happened in a loop, or in a whole function.
struct Effects {
  struct Read {
    const clang::Expr *Object;
    Placement P;
    const clang::Stmt *Top; ///< Statement of the loop's body that it is in.
    const clang::FunctionDecl *In; ///< The function that it is written in.
    bool LastBatch; ///< Behind the loop: of its last batch.
  };
  /// How `x.size(0)` is used.
  struct SizeUse {
    bool Shape = false;
    bool Number = false;
  };
  struct Backward {
    const clang::CXXMemberCallExpr *Call;
    Value Loss;
    const clang::FunctionDecl *In; ///< The function that it is written in.
  };
  struct Loop {
    const BatchLoop *Facts;
    const clang::CompoundStmt *Body;
    std::vector<const clang::ValueDecl *> Models;
    std::vector<Backward> Backwards;
    std::vector<const clang::ValueDecl *> Variables; ///< Gathered or split …
    const clang::Stmt *At = nullptr;                 ///< … before this.
    bool Gathers = false;
    /// Every process makes all of its passes in full, and why.
    bool Whole = false;
    std::vector<Finding> WhyWhole;
    /// … but for calls of models, whose rows are shared out (`Parallel`).
    bool InParts = false;
    /// Split into variables of their own, and where these are used.
    std::vector<const clang::ValueDecl *> Parts;
    std::vector<const clang::DeclRefExpr *> Uses;
    /// Split where they stand.
    std::vector<const clang::Expr *> Inline;
    /// States that are kept from batch to batch, split before the loop.
    std::vector<StateVariable> States;
  };
  /// A whole batch that a model reads, or that meets what a model returned.
  struct BatchRead {
    const clang::Expr *E;
    llvm::SmallVector<const clang::ValueDecl *, 2> Roots;
    bool InCallee;
    bool Folded; ///< Perhaps with several rows for each sample.
  };

  std::vector<Read> Reads;
  /// Reads of what is the same on all processes, in functions that the loop
  /// calls: another call may give them a part of the batch.
  std::vector<Read> WholeReads;
  llvm::MapVector<const clang::Expr *, SizeUse> Sizes;
  std::vector<Loop> Loops;
  std::set<const clang::Stmt *> Visited; ///< Batch loops.
  /// Loaders whose batches cannot be shared out, while the calls of models in
  /// their loops could.
  ProgramIndex::LoaderClasses WantUnsplit;
  std::vector<Finding> Refusals;
  /// Numbers that are the size of the whole batch where a shape wants this
  /// process's, and the functions that they stand in.
  llvm::MapVector<const clang::Expr *, const clang::FunctionDecl *> LocalSizes;
  /// Calls of squeeze() without a dimension on rows, and the functions that they
  /// stand in; those on tensors that are no rows while a batch is split.
  llvm::MapVector<const clang::CXXMemberCallExpr *, const clang::FunctionDecl *>
      Squeezes;
  std::set<const clang::Expr *> WholeSqueezes;
  /// Calls of models in training mode on tensors that every process has in
  /// full, and the functions that they stand in.
  llvm::MapVector<const clang::Expr *, const clang::FunctionDecl *> Replicated;
  /// Calls of models on whole batches whose rows can be shared out, and the
  /// functions that they stand in.
  llvm::MapVector<const clang::CallExpr *, const clang::FunctionDecl *> Parallel;
  /// Models of TorchScript that are called on rows of the batch, as spelled in
  /// front of `.forward`.
  llvm::MapVector<const clang::Expr *, const clang::FunctionDecl *> Scripted;

  // Of the loop that is being interpreted.
  std::vector<Backward> Backwards;
  std::vector<const clang::ValueDecl *> Models;
  std::vector<BatchRead> BatchReads;
  const clang::Stmt *FirstModelRead = nullptr;
  /// Shapes of whole tensors that met rows: the list, and the dimension that
  /// would have to count this process's samples.
  std::vector<std::pair<const clang::Expr *, unsigned>> WholeShapes;
  /// The same of variables that were set before the loop and are set in it.
  std::vector<StateVariable> WholeStates;
  /// Uses of variables that became parts.
  std::vector<const clang::DeclRefExpr *> PartUses;

  void refuse(Finding F);
  /// Adds what stays after the loop.
  void append(const Effects &Inner);
};

/// How a batch loop is interpreted: from `At` on the variables are split, or
/// gathered.
struct LoopPlan {
  enum KindTy { AsIs, Shard, Gather } Kind = AsIs;
  const clang::Stmt *At = nullptr;
  std::vector<const clang::ValueDecl *> Variables;
  /// Split into variables of their own, which the rest of the body uses.
  std::vector<const clang::ValueDecl *> Parts;
  /// Expressions that are split where they stand.
  std::vector<const clang::Expr *> Inline;
  /// Shapes that are written with this process's part of the batch.
  std::vector<std::pair<const clang::Expr *, unsigned>> LocalShapes;
  /// Variables that hold this process's part of a state when the loop begins.
  std::vector<StateVariable> States;
  /// Models may be called on tensors that every process has in full, where the
  /// runtime is told so: also before the last backward.
  bool Replicates = false;
  /// The batch stays whole; calls of models share out its rows.
  bool InParts = false;
};

/// Kinds of tensor operations (Operations.h).
enum class Op;

struct Operand {
  llvm::StringRef Name; ///< Of the parameter; "self" for a method's object.
  const clang::Expr *E = nullptr;
  Value V;
  bool Tensors = false; ///< Its type has tensors in it.
};

struct OpCall {
  std::string Name; ///< Without a trailing underscore.
  bool InPlace = false;
  const clang::Expr *Call = nullptr;
  std::vector<Operand> Operands;

  const Operand *find(llvm::StringRef Name) const;
};

/// The argument `retain_graph` of a call of backward, where it says something.
const clang::Expr *retainGraphOf(const clang::CXXMemberCallExpr *Backward);

class Interpreter {
public:
  Interpreter(SourceText &Text, const ProgramIndex &Index,
              const Differing &Differs)
      : Text(Text), Index(Index), Differs(Differs), Context(Index.Context) {}

  /// Runs through the function; what it does is returned.
  Effects interpret(const clang::FunctionDecl *F);

private:
  struct Slot {
    Value V;
    unsigned Depth = 0; ///< Of batch loops, where it is declared.
  };
  using Environment = std::map<const clang::ValueDecl *, Slot>;
  enum class Flow { Next, Ends };

  // Statements.cpp
  Flow exec(const clang::Stmt *S);
  Flow execBlock(const clang::CompoundStmt *S);
  void execLoop(const clang::Stmt *S);
  void execSwitch(const clang::SwitchStmt *S);
  void loopUntilStable(const std::function<void()> &Iteration,
                       bool KeepsLast = false);
  void forgetLastBatch();
  const Reason *leftOver(const clang::ValueDecl *Variable);
  /// The condition's value, when what differs has been made to agree where it
  /// must (Decisions.cpp).
  Value condition(const clang::Expr *E, const clang::Stmt *Controls);
  void declare(const clang::VarDecl *D, Value V);
  Environment joined(const Environment &A, const Environment &B,
                     clang::SourceLocation Loc);
  static bool same(const Environment &A, const Environment &B);

  // BatchLoops.cpp
  void execBatchLoop(const clang::Stmt *S, const BatchLoop &Facts);
  void runBatchLoop(const clang::Stmt *S, const BatchLoop &Facts,
                    const LoopPlan &Plan);
  void iterateBatchLoop(const clang::Stmt *S, const BatchLoop &Facts);
  Effects repaired(const clang::Stmt *S, const BatchLoop &Facts,
                   const clang::CompoundStmt *Body, LoopPlan &Plan);
  Effects attempt(const clang::Stmt *S, const BatchLoop &Facts,
                  const LoopPlan &Plan);

  // TrainingSteps.cpp
  void checkTrainingLoop(const clang::Stmt *S, const BatchLoop &Facts,
                         const clang::CompoundStmt *Body, Effects &E);
  std::vector<const clang::ValueDecl *> modelsOf(const clang::Stmt *S,
                                                 const Effects &E);
  void checkBackward(const Effects::Backward &B, Effects &E);
  void keepWhole(const clang::Stmt *S, const BatchLoop &Facts,
                 const clang::CompoundStmt *Body, Effects &E);
  void stepWithClosure(const clang::CallExpr *E);
  Value gradientOf(const Value &Self, const clang::Expr *E);

  // SplitBatches.cpp
  enum class SplitWays {
    Sources,
    Variables,
    NotSetBehind,
    Inline,
    InlineNotSetBehind
  };
  std::optional<Effects> modelsInParts(const clang::Stmt *S,
                                       const BatchLoop &Facts,
                                       const clang::CompoundStmt *Body);
  bool wouldDoInParts(const clang::Stmt *S, const BatchLoop &Facts,
                      const clang::CompoundStmt *Body);
  std::optional<LoopPlan> planSources(const clang::CompoundStmt *Body,
                                      const Effects &Whole);
  std::optional<LoopPlan> planShard(const clang::CompoundStmt *Body,
                                    Effects &Whole, SplitWays Ways);
  Effects splitWhole(const clang::Stmt *S, const BatchLoop &Facts,
                     const clang::CompoundStmt *Body, Effects Whole,
                     Environment &After);
  void startPlan();
  void noteBatch(const clang::Expr *E, const Value &V);
  const Value *partOf(const clang::DeclRefExpr *E);

  // KeptStates.cpp
  bool isKept(const clang::CompoundStmt *Body,
              const clang::ValueDecl *V) const;
  void noteState(const Value &V);
  void startStates();

  // GatherPlan.cpp
  std::optional<LoopPlan> planGather(const clang::CompoundStmt *Body,
                                     const Effects &Local);

  // Expressions.cpp
  Value eval(const clang::Expr *E);
  Value evalPlain(const clang::Expr *E);
  Value evalVariable(const clang::DeclRefExpr *E);
  Value evalMember(const clang::MemberExpr *E);
  Value evalConstruct(const clang::CXXConstructExpr *E);
  Value evalList(llvm::ArrayRef<const clang::Expr *> Parts);
  void settle(Value &Tuple, clang::SourceLocation Loc);
  Value evalBinary(const clang::BinaryOperator *E);
  bool asksWhetherEmpty(const clang::BinaryOperator *E);
  Value evalChildren(const clang::Expr *E);
  Value arithmetic(const Value &A, const Value &B, const clang::Expr *E);
  void assign(const clang::Expr *To, Value V, const clang::Expr *E);
  /// The value as a number of the host: local sizes become global.
  Value number(const Value &V);
  void shape(const Value &V);
  Value understood(const Value &V, const clang::Expr *E);

  // Calls.cpp
  Value evalCall(const clang::CallExpr *E);

  // Operators.cpp
  Value evalOperator(const clang::CXXOperatorCallExpr *E);
  Value evalPrint(const clang::CXXOperatorCallExpr *E);

  // Functions.cpp
  Value evalOwn(const clang::FunctionDecl *F, const clang::CallExpr *E,
                llvm::ArrayRef<const clang::Expr *> Args,
                llvm::ArrayRef<Value> Values, const Value *Self);
  Value followOrGather(const clang::FunctionDecl *Body,
                       const clang::CallExpr *E,
                       llvm::ArrayRef<const clang::Expr *> Args,
                       llvm::ArrayRef<Value> Values, const Value *Self);
  Value follow(const clang::FunctionDecl *Body, const clang::CallExpr *E,
               llvm::ArrayRef<const clang::Expr *> Args,
               llvm::ArrayRef<Value> Values, const Value *Self);
  Value followedApart(const clang::FunctionDecl *Body, const clang::CallExpr *E,
                      llvm::ArrayRef<const clang::Expr *> Args,
                      llvm::ArrayRef<Value> Values, const Value *Self) const;
  Value evalForeign(const clang::FunctionDecl *F, const clang::CallExpr *E,
                    llvm::ArrayRef<const clang::Expr *> Args,
                    llvm::ArrayRef<Value> Values);
  bool takesWhole(const clang::FunctionDecl *F, const clang::CallExpr *E,
                  unsigned I, unsigned Count) const;
  void mayBeWritten(const clang::FunctionDecl *F,
                    llvm::ArrayRef<const clang::Expr *> Args,
                    const clang::Expr *E);

  // StandardLibrary.cpp
  Value evalStd(const clang::FunctionDecl *F, const clang::CallExpr *E,
                bool &Known);

  // Reads.cpp
  void metricRead(const clang::Expr *Object, const Value &V,
                  const clang::Expr *E);
  Value gatheredOr(const OpCall &Call, Value Otherwise);
  void escape(const Value &V, const clang::Expr *E, const std::string &Into);
  Value readOut(const Value &V, const clang::Expr *Source);

  // Operations.cpp
  Value evalOp(OpCall &Call);
  Value evalKnownOp(Op Kind, OpCall &Call);
  std::optional<Value> notFirst(const OpCall &Call);
  std::optional<Value> splitAmongOthers(const OpCall &Call);
  Value rowsLike(const OpCall &Call, unsigned MinRank, int Rank = -1);
  void noteMeeting(const OpCall &Call);

  // Scripted.cpp
  std::optional<Value> evalScripted(const clang::CXXMemberCallExpr *E,
                                    llvm::ArrayRef<Value> Values);

  // WholeTensors.cpp
  Value allReplicated(std::optional<Op> Kind, const OpCall &Call);
  int rankOfWhole(std::optional<Op> Kind, const OpCall &Call);
  unsigned minRankOfWhole(std::optional<Op> Kind, const OpCall &Call);

  // Elementwise.cpp
  Value pointwise(const OpCall &Call);
  Value added(const OpCall &Call);
  Value multiplied(const OpCall &Call, bool Divide);

  // Shapes.cpp
  Value reshaped(Op Kind, const OpCall &Call);
  std::optional<Value> moved(Op Kind, const OpCall &Call);
  Value viewed(const OpCall &Call);
  bool useLocalSize(const clang::Expr *Shape, unsigned I);
  std::optional<Value> localFactory(const OpCall &Call);
  void noteWholeShape(const Value &V, unsigned Dim);
  Value factory(const OpCall &Call);
  Value sizeOf(const OpCall &Call);

  // Indexing.cpp
  Value joinedTensors(Op Kind, const OpCall &Call);
  Value indexed(Op Kind, const OpCall &Call);
  std::optional<Value> lookedUp(const OpCall &Call);
  std::optional<Value> joinedWhole(const OpCall &Call);
  std::optional<Value> putAt(const OpCall &Call);
  std::optional<Value> sliced(const OpCall &Call,
                              const clang::InitListExpr &List);

  // Dimensions.cpp
  Value along(const OpCall &Call, bool Reduces, Placement OverBatch);
  struct Dims {
    enum { Absent, Known, Unclear } State = Absent;
    llvm::SmallVector<int64_t, 4> List;
  };
  Dims dimsOf(const OpCall &Call);
  /// Whether the dimension may be 0 in a tensor like `V`: yes, no, not known.
  enum class Zero { Yes, No, Perhaps };
  Zero isBatchDim(int64_t Dim, const Value &V);

  // Einsum.cpp
  Value einsum(const OpCall &Call);

  // Losses.cpp
  std::optional<Value> evalLoss(const OpCall &Call);
  std::optional<Value> evalLossModule(const clang::CXXRecordDecl *Impl,
                                      const OpCall &Call);
  Value lossOf(const OpCall &Call, std::optional<int> Reduction);

  // Modules.cpp
  // DataParallel.cpp
  bool mayCallInParts(const clang::CallExpr *E,
                      llvm::ArrayRef<const clang::Expr *> Args,
                      llvm::ArrayRef<Value> Values) const;
  std::optional<Value> calledInParts(const clang::CXXRecordDecl *Impl,
                                     const Value &Self,
                                     const clang::CallExpr *E,
                                     llvm::ArrayRef<const clang::Expr *> Args,
                                     llvm::ArrayRef<Value> Values);
  bool mayReplicate(const clang::CallExpr *E,
                    llvm::ArrayRef<Value> Values) const;
  Value evalModule(const clang::CXXRecordDecl *Impl, const Value &Self,
                   const clang::CallExpr *E,
                   llvm::ArrayRef<const clang::Expr *> Args,
                   llvm::ArrayRef<Value> Values);
  Value callModule(const clang::CXXRecordDecl *Impl, const Value &Self,
                   const clang::CallExpr *E,
                   llvm::ArrayRef<const clang::Expr *> Args,
                   llvm::ArrayRef<Value> Values);
  Value evalTorchModule(const clang::CXXRecordDecl *Impl,
                        const clang::CallExpr *E,
                        llvm::ArrayRef<const clang::Expr *> Args,
                        llvm::ArrayRef<Value> Values);
  void noteModel(const Value &Self, llvm::ArrayRef<const clang::Expr *> Args,
                 llvm::ArrayRef<Value> Values);
  void setMode(const Value &Model, bool Evaluates);
  void forgetModes(const std::set<const clang::ValueDecl *> &Set);
  bool evaluates(const clang::ValueDecl *Model) const;
  // Functional.cpp
  Value evalFunctional(const clang::CXXConstructExpr *Made,
                       const clang::CallExpr *E, const clang::Expr *Input,
                       const Value &X);
  Value evalRecurrent(const clang::CXXRecordDecl *Impl, const clang::Expr *E,
                      llvm::ArrayRef<Value> Values);
  int rankBehind(const clang::CXXRecordDecl *Impl, int Rank) const;

  const Reason *reason(llvm::StringRef Id, clang::SourceLocation Loc,
                       std::string Message, std::string Remedy = "");
  Value unknown(llvm::StringRef Id, const clang::Expr *E, std::string Message,
                std::string Remedy = "");
  void refuse(llvm::StringRef Id, clang::SourceLocation Loc,
              std::string Message, std::string Remedy = "");
  void refuse(const Reason *Why);
  /// The first operand or value that is unknown.
  static const Value *firstUnknown(llvm::ArrayRef<Value> Values);
  std::string spelled(const clang::Expr *E);

  SourceText &Text;
  const ProgramIndex &Index;
  const Differing &Differs;
  clang::ASTContext &Context;

  Environment Env;
  Effects *Out = nullptr;
  std::deque<Reason> Reasons;
  /// Batch loops around what is being interpreted.
  unsigned BatchDepth = 0;
  const LoopPlan *Plan = nullptr;
  std::map<const clang::ValueDecl *, Value> Parts;
  /// Whether the batch of the loop is split, or about to be.
  bool Splits = false;
  /// Whether calls of models on whole batches share out their rows.
  bool InParts = false;
  const clang::CompoundStmt *BatchBody = nullptr;
  /// The last backward() that is written in it; invalid if there is none.
  clang::SourceLocation LastBackward;
  const clang::Stmt *Top = nullptr;
  /// The functions that are being interpreted; more than one: in a call.
  std::vector<const clang::FunctionDecl *> Stack;
  std::vector<std::optional<Value>> Returned;
  /// Functions that were taken to return one row per sample while they were
  /// being interpreted.
  std::set<const clang::FunctionDecl *> KeepsRows;
  Value This;
  /// Models that the function being interpreted, or what it called, has put
  /// into some mode.
  std::set<const clang::ValueDecl *> ModesSet;
  /// Whether the model whose forward is interpreted is in evaluation mode.
  bool ModelEvaluates = false;
  struct Jumps {
    std::vector<Environment> Continues, Breaks;
  };
  std::vector<Jumps> Loops;
  bool inCallee() const { return Stack.size() > 1; }
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_INTERPRETER_H
