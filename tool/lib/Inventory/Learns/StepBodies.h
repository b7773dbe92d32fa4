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
// function that it calls is the step: passes of the loop without one are not counted.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H

#include "Code/ProgramIndex.h"

#include <optional>

namespace accel::migrate {

class StepBodies {
public:
  /// A function each call of which is a step, behind what may leave it early.
  struct StepFunction {
    const clang::FunctionDecl *F = nullptr;
    const clang::Stmt *Guard = nullptr; ///< Null where there is none.
  };

  explicit StepBodies(const ProgramIndex &Index);

  /// Whether the training loop is part of the step that another one makes.
  bool isPartOfStep(const BatchLoop &Loop) const;
  /// Loops whose passes are steps although each backward in them stands in a loop
  /// inside, which updates nothing:
  /// `for (…) { for (…) loss.backward(); optimizer.step(); }`.
  llvm::ArrayRef<BatchLoop> loopsAround() const { return LoopsAround; }
  /// Those that something unseen calls, closures among them.
  std::vector<StepFunction> stepsGivenAway() const;
  /// Whether a backward in it is for the gradient of an input, and not for that of
  /// parameters: `x.set_requires_grad(true); net(x).sum().backward(); x.grad()`.
  bool isForInput(const BackwardCall &B) const;
  /// The closures that are the steps of the loop, with their bodies; empty where the
  /// loop's body is.
  std::vector<const clang::CXXMethodDecl *>
  closuresOf(const BatchLoop &Loop) const;

  /// That of the loop, if its passes are no steps; else nothing.
  std::optional<StepFunction> functionOf(const BatchLoop &Loop) const;

private:
  std::optional<StepFunction> functionIn(const clang::Stmt *Body,
                                         unsigned Depth = 0) const;
  /// What the body of a training loop runs.
  struct Run {
    bool Updates = false; ///< An optimizer steps.
    std::set<const clang::FunctionDecl *> Functions;
  };
  Run runOf(const clang::Stmt *Loop,
            const std::set<const clang::Stmt *> &Apart = {}) const;
  static bool runs(const Run &Outer, const clang::Stmt *OuterLoop,
                   const BatchLoop &Inner, const clang::SourceManager &SM);
  void findLoopsAround();

  const ProgramIndex &Index;
  std::map<const clang::Stmt *, Run> Runs; ///< Of each loop whose passes are steps.
  std::vector<BatchLoop> LoopsAround;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_STEPBODIES_H
