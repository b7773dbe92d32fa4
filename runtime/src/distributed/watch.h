#pragma once

#include "distributed/call.h"

#include <memory>
#include <string>

namespace accel::distributed {

/// What looks at every operator. All off unless asked for, then one test of
/// `any` in each operator on a distributed tensor is the cost.
struct Watch {
  bool any = false;
  /// ACCEL_CHECK_PLACEMENTS=1: each result is compared with that of the operator
  /// on whole tensors; the first difference throws and names it.
  bool check = false;
  /// ACCEL_PLACEMENT_REPORT=1: where the time goes, printed by process 0 at the
  /// end; =FILE.json: written to that file.
  bool report = false;
  std::string report_file;
  /// Tests only: is handed the results of operators on plain tensors, to place
  /// them at random.
  void (*place)(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      torch::jit::Stack& stack) = nullptr;

  /// Operators are noted in one more thread (recompute.h), or in one less.
  void listen(int more);
};

/// Read from the environment when it is first asked for; throws `c10::Error`
/// where a variable has a value that it cannot have.
ACCEL_API Watch& watch();

/// While something looks at operators, those on plain tensors come to the
/// library, too, in the thread that calls this. Called with the first
/// distributed tensor.
void begin_watching();

/// One operator on distributed tensors that is looked at: made before it runs,
/// told when it has.
class Watched {
 public:
  Watched(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      const torch::jit::Stack& stack,
      Axis& axis);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// The results are on the stack. Throws where the check has found a
  /// difference.
  void done(const torch::jit::Stack& stack, bool by_rule);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// While one lives, the operators of its thread that no distributed tensor takes part
/// in are shown to it. One for each thread at a time.
class ACCEL_API PlainOperators {
 public:
  PlainOperators();
  virtual ~PlainOperators();
  PlainOperators(const PlainOperators&) = delete;
  PlainOperators& operator=(const PlainOperators&) = delete;

  /// Whether this thread has one.
  static bool are_followed();

  /// An operator is about to run. Its arguments may become distributed now.
  virtual void before() = 0;
  /// It has run; its results are on the stack.
  virtual void after(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      const torch::jit::Stack& stack) = 0;

 private:
  bool was_included_;
};

/// While it lives, operators of this thread on plain tensors are this process's part of
/// one that all do together: the report counts them so, in backward, too.
class PartScope {
 public:
  PartScope();
  ~PartScope();
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

 private:
  uint64_t first_;
};

/// Runs an operator on plain tensors, and looks at it.
void run_plain(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack);

} // namespace accel::distributed
