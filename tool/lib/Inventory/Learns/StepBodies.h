//===- StepBodies.h - What is one training step -----------------*- C++ -*-===//
//
// A training step is what one update of the optimizer belongs to. A backward in a loop
// without one is part of the step around it: micro-batches that are added up, an
// input that is changed by its own gradient, one gradient for each task. The loop around
// it need not be one that is known for a backward of its own: it is the innermost that
// updates. Where
// a function goes through batches and makes no step itself, the closure that it
// is given is the step: `for_each_batch(data, [&](auto x, auto y) { … });`. And where a
// loop comes to a whole step only now and then, `if (memory.full()) agent.learn();`, the
// function that it calls, or the condition's block, is the step: passes of the loop
// without one are not counted.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H

#include "Code/ProgramIndex.h"

#include <optional>

namespace accel::migrate {

class StepBodies {
public:
  /// What is a step each time that the program comes to it: a function, or a block that
  /// a condition stands in front of.
  struct StepPlace {
    /// The function that it is, or that the block stands in; null for that of the loop.
    const clang::FunctionDecl *In = nullptr;
    const clang::Stmt *Body = nullptr;
    /// The last of the statements with which it begins that may leave it early; null
    /// where there is none.
    const clang::Stmt *Guard = nullptr;
    bool isFunction() const { return In && Body == In->getBody(); }
  };

  explicit StepBodies(const ProgramIndex &Index);

  /// Whether the training loop is part of the step that another one makes.
  bool isPartOfStep(const BatchLoop &Loop) const;
  /// Whether a training loop only computes gradients, and nothing in it can change a
  /// parameter: a gradient check, a Fisher matrix.
  bool updatesNothing(const BatchLoop &Loop) const;
  /// Loops whose passes are steps although each backward in them stands in a loop
  /// inside, which updates nothing:
  /// `for (…) { for (…) loss.backward(); optimizer.step(); }`.
  llvm::ArrayRef<BatchLoop> loopsAround() const { return LoopsAround; }
  /// Functions that something unseen calls, closures among them.
  std::vector<StepPlace> stepsGivenAway() const;
  /// Whether a backward in it is for the gradient of an input, and not for that of
  /// parameters: `x.set_requires_grad(true); net(x).sum().backward(); x.grad()`.
  bool isForInput(const BackwardCall &B) const;
  /// The closures that are the steps of the loop, with their bodies; empty where the
  /// loop's body is.
  std::vector<const clang::CXXMethodDecl *>
  closuresOf(const BatchLoop &Loop) const;

  /// That of the loop, if not each of its passes is a step; else nothing.
  std::optional<StepPlace> placeOf(const BatchLoop &Loop) const;

private:
  std::optional<StepPlace> placeIn(const clang::Stmt *Body,
                                   unsigned Depth = 0) const;
  bool isOnlyStepOf(const clang::Stmt *Body, const clang::Stmt *Step) const;
  /// What statements run, with the functions and closures of the program that
  /// they call or name.
  struct Run {
    bool Updates = false; ///< An optimizer steps.
    bool HasBackward = false;
    /// Parameters may be written by hand, or by what is not seen.
    bool MayWrite = false;
    /// The optimizers; null for those that are no variables.
    std::set<const clang::ValueDecl *> Stepped;
    std::set<const clang::FunctionDecl *> Functions;
  };
  class RunFinder;
  Run runOf(const clang::Stmt *S,
            const std::set<const clang::Stmt *> &Apart = {}) const;
  bool runs(const Run &Outer, const clang::Stmt *OuterLoop,
            const BatchLoop &Inner) const;
  void findLoopsAround();

  const ProgramIndex &Index;
  const clang::SourceManager &SM;
  std::map<const clang::Stmt *, Run> Runs; ///< Of each loop whose passes are steps.
  std::vector<BatchLoop> LoopsAround;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H
