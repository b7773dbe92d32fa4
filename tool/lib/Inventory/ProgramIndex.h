//===- ProgramIndex.h - What the unit has, before it is interpreted -*- C++ -*-===//
//
// One walk over the person's declarations: functions as they are really
// instantiated, the loops over batches in them, and how modules are made.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H
#define ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H

#include "clang/AST/ASTContext.h"
#include "clang/AST/DeclCXX.h"
#include "clang/AST/ExprCXX.h"
#include "clang/AST/StmtCXX.h"

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

/// The body of a `for`, `while`, `do` or range-`for`.
const clang::Stmt *bodyOf(const clang::Stmt *Loop);

/// The loader that a loop goes over, by `for (… : *loader)` or by its iterators,
/// `for (auto it = loader->begin(); it != loader->end(); ++it)`; or null.
const clang::Expr *loaderOfLoop(const clang::Stmt *Loop);

/// Whether a loader is a local variable that is read through `begin()` and
/// `end()` and nothing else, and no loop goes over it: `*loader->begin()`. Such
/// a loader stays LibTorch's, and gives every process the whole batch.
bool isOnlyLookedInto(const clang::ValueDecl *Loader);

/// Whether the loader of a loop gives batches whose samples are stacked along
/// dimension 0: the last transform of its data set is Stack<>.
bool givesRows(const clang::Stmt *Loop);

/// A loop over batches.
struct BatchLoop {
  const clang::Stmt *Loop = nullptr;
  const clang::FunctionDecl *In = nullptr;
  bool HasLoader = false;
  bool Training = false; ///< Its passes run a backward.
  bool InLambda = false;
  /// Its loader gives something else than a batch with its samples in dimension
  /// 0, so that it stays LibTorch's: every process reads all of it.
  bool Unsplit = false;

  /// Whether each process is handed its part of the batches.
  bool sharesBatches() const { return HasLoader && !Unsplit; }
};

/// A call of Tensor::backward.
struct BackwardCall {
  const clang::CXXMemberCallExpr *Call = nullptr;
  const clang::FunctionDecl *In = nullptr;
  /// The function, or the lambda's operator(), whose body it is written in.
  const clang::FunctionDecl *Writer = nullptr;
  /// The loop around it whose passes are training steps: the innermost over a
  /// loader, else the innermost. Null: none in its function.
  const clang::Stmt *Step = nullptr;
  bool InLambda = false;
};

/// A call of one of the person's own functions, or of a closure.
struct OwnCall {
  const clang::FunctionDecl *From = nullptr; ///< As BackwardCall::Writer.
  const clang::FunctionDecl *To = nullptr;
  const clang::Stmt *Step = nullptr; ///< As BackwardCall::Step.
  bool InLambda = false;
};

struct ProgramIndex {
  using LoaderClasses = std::set<const clang::CXXRecordDecl *>;

  /// `Unsplit`: classes of loaders that are to stay LibTorch's, too.
  ProgramIndex(clang::ASTContext &Context, const LoaderClasses &Unsplit);

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

  /// Constructions of LibTorch's modules, by the name of the Impl class.
  std::map<std::string, std::vector<const clang::CXXConstructExpr *>> Modules;
  /// Classes of LibTorch's modules that are also made where their options are
  /// not followed.
  std::set<std::string> UnseenModules;
  /// What every AnyModule of the program holds; null where there are several
  /// classes, or where one is not seen.
  const clang::CXXRecordDecl *anyModule() const {
    return AnyModules.size() == 1 ? *AnyModules.begin() : nullptr;
  }
  /// The classes of modules that AnyModules are made from. A null pointer where
  /// others may be, in what is made and kept by containers.
  std::set<const clang::CXXRecordDecl *> AnyModules;

  /// Modules that are put into containers.
  std::set<const clang::CXXRecordDecl *> Contained;

  /// The classes of the loaders that make_data_loader makes.
  LoaderClasses LoadersMade;
  /// Those of them that stay LibTorch's (`BatchLoop::Unsplit`).
  LoaderClasses Unsplit;
  /// Whether any loop shares batches of a loader.
  bool sharesLoaders() const;

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

  void markTraining(const clang::Stmt *Loop, const clang::FunctionDecl *In);
  /// Whether the program may come to `F`, as far as is seen.
  bool isReached(const clang::FunctionDecl *F) const;
  /// Whether `F` runs a training step outside of any loop, in a program that has
  /// no loop over batches that trains.
  bool stepsAlone(const clang::FunctionDecl *F) const;
  /// Whether calling `F` runs a loop over batches, of whatever depth.
  bool runsBatches(const clang::FunctionDecl *F) const;
  /// Whether calling `F` runs a training loop that makes its own batches.
  bool makesBatches(const clang::FunctionDecl *F) const;
  /// Whether a training loop stands in `F` itself.
  bool trainsDirectly(const clang::FunctionDecl *F) const;
  /// Whether `S` has a loop over batches in it, or runs one.
  bool holdsBatches(const clang::Stmt *S) const;
  /// Whether a loop over batches calls `F`, directly or not.
  bool calledFromBatches(const clang::FunctionDecl *F) const;
  /// Whether a data set calls `F` for its samples: perhaps in a thread, and
  /// only for those of this process.
  bool loadsSamples(const clang::FunctionDecl *F) const;
  /// The same for a lambda that is made into a transform.
  bool loadsSamples(const clang::LambdaExpr *L) const;
  /// Whether `D` is one of the person's own functions, with a visible body.
  bool isOwn(const clang::FunctionDecl *D) const;

private:
  void markSteps(llvm::ArrayRef<OwnCall> Calls);
  void findOpeners();
  void findReached();

  std::set<const clang::FunctionDecl *> Own, Reached;
  mutable std::map<const clang::FunctionDecl *, bool> Runs;
  std::set<const clang::FunctionDecl *> InBatches, InSamples;
  std::set<const clang::LambdaExpr *> SampleLambdas;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_PROGRAMINDEX_H
