#pragma once

#include "distributed/call.h"

#include <memory>

namespace accel::distributed {

/// What looks at every operator on distributed tensors. All off unless asked
/// for, then one test of `any` in each operator is the cost.
struct Watch {
  bool any = false;
  /// ACCEL_CHECK_PLACEMENTS=1: each rule's result is compared with the operator
  /// on whole tensors; the first difference throws and names it.
  bool check = false;
  /// ACCEL_PLACEMENT_REPORT=1: where the time goes, printed at the end.
  bool report = false;
  /// Random placements (test/distributed): results of operators on plain
  /// tensors are cut at random.
  bool placing = false;
};
Watch& watch();

/// One operator that is looked at: made before it runs, told when it has.
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

/// Random placements: cuts the result of an operator on plain tensors at random.
void place_at_random(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack);

} // namespace accel::distributed
