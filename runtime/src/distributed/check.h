#pragma once

#include "distributed/call.h"

#include <memory>

namespace accel::distributed {

/// The shadow check of one operator (ACCEL_CHECK_PLACEMENTS=1): runs it on
/// copies of the whole tensors, and compares what it gives and writes with what
/// the library makes of the parts.
///
/// Random operators run twice from the same state of their generator. Of
/// operators that return fresh memory only sizes and dtypes are compared.
/// Tensors that share memory with an argument are not looked at: a stale read
/// through a view shows at the next operator that uses it only if the library
/// and the check see different values.
///
/// Collective, both the constructor and `compare`.
class ShadowCheck {
 public:
  ShadowCheck(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      const torch::jit::Stack& stack);
  ~ShadowCheck();

  /// The library has run the operator. Throws `c10::Error` with operator, place
  /// in the source, arguments and the first different value.
  void compare(const torch::jit::Stack& stack, bool by_rule);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "[64, 10] S(0), [10] R, 0.5": arguments with their sizes and placements.
std::string describe_arguments(
    const OperatorInfo& info,
    const torch::jit::Stack& stack);

} // namespace accel::distributed
