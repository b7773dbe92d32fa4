//===- ProgramIndex.h - Functions, loops and steps of the unit --*- C++ -*-===//
//
// One walk over the person's declarations: functions as they are really
// instantiated, the loops over loaders in them, and which loops train.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_PROGRAMINDEX_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_PROGRAMINDEX_H

#include "clang/AST/ASTContext.h"
#include "clang/AST/DeclCXX.h"
#include "clang/AST/ExprCXX.h"
#include "clang/AST/StmtCXX.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace accel::migrate {

/// The lambda's operator() that a call through `E` runs: a lambda, a variable
/// that was made from one, a std::function made from one; or null.
const clang::FunctionDecl *closureOf(const clang::Expr *E);

/// Whether a local variable is given another value after its initialiser.
bool isReassigned(const clang::VarDecl *V);

/// Whether `Loc` is in the text of `S`.
bool isWithin(clang::SourceLocation Loc, const clang::Stmt *S,
              const clang::SourceManager &SM);

/// Whether `S` is a `for`, `while`, `do` or range-`for`.
bool isLoop(const clang::Stmt *S);

/// The body of such a loop.
const clang::Stmt *bodyOf(const clang::Stmt *Loop);

/// The block of a function's or a lambda's body, of a coroutine's, too; null where it is
/// none (`try`).
const clang::CompoundStmt *blockOf(const clang::Stmt *Body);

/// What a constructor initialises; nothing for other functions.
llvm::ArrayRef<clang::CXXCtorInitializer *>
initsOf(const clang::FunctionDecl *F);

/// What a function returns, at each place, but for the lambdas in it; null for
/// `return;`.
llvm::SmallVector<const clang::Expr *, 2>
valuesOf(const clang::FunctionDecl *Body);

/// The variable that a statement declares, and no other one; or null.
const clang::VarDecl *declaredBy(const clang::Stmt *S);

/// The condition of a statement, or of `? :`, that decides which of its parts run, or
/// how often; null where there is none.
const clang::Expr *conditionOf(const clang::Stmt *S);

/// Whether a statement decides if, or how often, its parts run: a condition, a loop.
bool decidesAboutParts(const clang::Stmt *S);

/// The loader that a loop goes over, by `for (… : *loader)` or by its iterators,
/// `for (auto it = loader->begin(); it != loader->end(); ++it)`; or null.
const clang::Expr *loaderOfLoop(const clang::Stmt *Loop);

/// Whether the runtime's loaders distribute the tensors of batches of this type:
/// tensors, `torch::data::Example`s, pairs, tuples, arrays and maps of such, and
/// structs.
bool isBatch(clang::QualType T);

/// Whether the variable that a loop over `Loader` declares is a batch that the
/// runtime's loader distributes. Of a data set whose class is final it cannot.
bool isDistributedBy(const clang::Expr *Loader, clang::QualType Variable);

/// A batch whose tensors have names: a struct, a map by `std::string`, or such in an
/// optional or a variant. (A pair or a tuple may be a state.)
bool isNamedBatch(clang::QualType T);

/// Whether `E` reads a batch from a loader: what a loop over it declares, `*it`
/// and `it->` of its iterators.
bool readsBatch(const clang::Expr *E);

/// A loop over a loader, or one that trains.
struct BatchLoop {
  const clang::Stmt *Loop = nullptr;
  const clang::FunctionDecl *In = nullptr;
  /// The function, or the lambda's operator(), whose body it is written in.
  const clang::FunctionDecl *Writer = nullptr;
  bool HasLoader = false;
  bool Training = false; ///< Its passes run a backward.
  /// A backward behind it reads what its passes add up: they are part of the
  /// step that the backward belongs to.
  bool AddsUp = false;
};

/// A call of Tensor::backward, or of torch::autograd::backward; in a program that
/// has none, of torch::autograd::grad.
struct BackwardCall {
  const clang::CallExpr *Call = nullptr;
  const clang::FunctionDecl *In = nullptr;
  const clang::FunctionDecl *Writer = nullptr; ///< As BatchLoop::Writer.
  /// The loop around it whose passes are training steps: the innermost over a
  /// loader, else the innermost. Null: none in its function.
  const clang::Stmt *Step = nullptr;
};

/// A call of one of the person's own functions, or of a closure.
struct OwnCall {
  const clang::FunctionDecl *In = nullptr;
  const clang::FunctionDecl *From = nullptr; ///< As BackwardCall::Writer.
  const clang::FunctionDecl *To = nullptr;
  const clang::Stmt *Step = nullptr; ///< As BackwardCall::Step.
};

struct ProgramIndex {
  explicit ProgramIndex(clang::ASTContext &Context);

  clang::ASTContext &Context;

  /// Functions with bodies, without patterns of templates; in the order of
  /// the text.
  std::vector<const clang::FunctionDecl *> Functions;
  const clang::FunctionDecl *Main = nullptr;
  /// Functions of the person's own that only the main process is to call
  /// (OutputFunctions.cpp); canonical declarations.
  std::set<const clang::FunctionDecl *> OfMainProcess;
  /// Templates with a body that nobody instantiates.
  std::vector<const clang::FunctionDecl *> NeverInstantiated;
  std::vector<const clang::VarDecl *> Globals;
  std::vector<const clang::FieldDecl *> Fields;

  std::map<const clang::Stmt *, BatchLoop> Loops;
  std::vector<BackwardCall> Backwards;
  /// Functions with a backward in no loop of theirs that a loop calls.
  std::set<const clang::FunctionDecl *> InStep;
  /// Functions and closures with a backward in no loop of theirs to which no call leads
  /// from main that is seen: what they are given to does, a std::function, a list of
  /// hooks.
  std::vector<const clang::FunctionDecl *> GivenAway;

  /// Functions that do nothing with two of their parameters but to give them to
  /// fopen, as the path and the mode; where their names are used in calls only.
  struct Opener {
    unsigned Path = 0, Mode = 0;
    const clang::CallExpr *Opens = nullptr;
  };
  std::map<const clang::FunctionDecl *, Opener> Openers;
  /// What a call opens as fopen does: the place of its path and of its mode in
  /// the arguments; or null.
  const Opener *openerOf(const clang::CallExpr *Call) const;

  /// Functions of the person's that are used and have no body here.
  std::vector<const clang::FunctionDecl *> Missing;

  /// Functions that a global variable's initialiser calls, before main begins.
  std::set<const clang::FunctionDecl *> BeforeMain;

  /// Whether the program may come to `F`, as far as is seen.
  bool isReached(const clang::FunctionDecl *F) const;
  /// Whether calling `F` runs a loop over batches or a backward, of whatever depth.
  bool runsBatches(const clang::FunctionDecl *F) const;
  /// Whether a loop goes through the batches of a loader.
  bool readsLoaders() const;
  /// Whether a training loop stands in `F` itself.
  bool trainsDirectly(const clang::FunctionDecl *F) const;
  /// Whether `S` has a loop over batches or a backward in it, or runs one.
  bool holdsBatches(const clang::Stmt *S) const;
  /// Whether what stands at `Loc`, in the body of `F`, is part of a training
  /// step.
  bool isInStep(clang::SourceLocation Loc,
                const clang::FunctionDecl *F) const;
  /// Whether a data set calls `F` for its samples: perhaps in a thread, and
  /// only for those of this process.
  bool loadsSamples(const clang::FunctionDecl *F) const;
  /// The same for a lambda that is made into a transform.
  bool loadsSamples(const clang::LambdaExpr *L) const;
  /// Whether `D` is one of the person's own functions, with a visible body.
  bool isOwn(const clang::FunctionDecl *D) const;
  /// The bodies that a call of `F` may run, of the person's own functions or
  /// not: the one of `F`, and those of the methods that override it.
  llvm::SmallVector<const clang::FunctionDecl *, 2>
  bodiesOf(const clang::FunctionDecl *F) const;
  /// Those of them that are the person's own.
  llvm::SmallVector<const clang::FunctionDecl *, 2>
  ownBodiesOf(const clang::FunctionDecl *F) const;
  /// The closures and functions that a call through a std::function or a pointer
  /// may run, as far as is seen; none for other calls. (Of a std::function the
  /// call's first argument is itself.)
  llvm::ArrayRef<const clang::FunctionDecl *>
  callablesOf(const clang::CallExpr *Call) const;
  /// The same, of what is held by a variable, a parameter or a field; it may be null.
  llvm::ArrayRef<const clang::FunctionDecl *>
  callablesIn(const clang::ValueDecl *Holder) const;

private:
  void markTraining(const clang::Stmt *Loop, const clang::FunctionDecl *In,
                    const clang::FunctionDecl *Writer);
  void markSteps(llvm::ArrayRef<OwnCall> Calls);
  void markAddingUp();
  void findOpeners();
  void findReached();
  void findCallables();
  void findSamples();

  void addOverrider(const clang::CXXMethodDecl *M);

  std::set<const clang::FunctionDecl *> Own, Reached;
  /// By the methods that they override, directly or not; canonical declarations.
  std::multimap<const clang::FunctionDecl *, const clang::CXXMethodDecl *>
      Overriders;
  mutable std::map<const clang::FunctionDecl *, bool> Runs;
  /// By what holds them.
  std::map<const clang::ValueDecl *,
           llvm::SmallVector<const clang::FunctionDecl *, 2>>
      Callables;
  /// What training steps call, directly or not; with the operator() of lambdas.
  std::set<const clang::FunctionDecl *> Steps;
  std::set<const clang::FunctionDecl *> InSamples;
  std::set<const clang::LambdaExpr *> SampleLambdas;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_PROGRAMINDEX_H
