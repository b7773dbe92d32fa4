#pragma once

#include "distributed/call.h"

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

// The random numbers that operators on distributed tensors draw: processes must draw
// those of one device, so that their generators must be in the same state.

namespace accel::distributed {

/// Where an operator computes whose arguments are on the stack: the device of the first
/// tensor that is there, or that is named.
c10::Device device_of(const OperatorInfo& info, const torch::jit::Stack& stack);

/// What a random operator, whose arguments are on the stack, draws from; nothing for
/// others.
std::optional<at::Generator> generator_of(
    const OperatorInfo& info, const torch::jit::Stack& stack);

/// Around a random operator: where it has drawn something, the state in which its
/// generator was is compared with the other processes' (`ReadValues::add_draw`).
class NotedDraw {
 public:
  NotedDraw(const OperatorInfo& info, const torch::jit::Stack& stack);
  /// The operator has run.
  void done();

 private:
  std::optional<at::Generator> generator_;
  uint64_t before_ = 0;
};

} // namespace accel::distributed
