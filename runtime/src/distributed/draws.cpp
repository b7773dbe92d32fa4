#include "distributed/draws.h"

#include "checkpoint/xxh64.h"
#include "core/read_values.h"
#include "core/runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/hash.h>

#include <mutex>

namespace accel::distributed {
namespace {

/// A number for the state of a generator. Of the CPU's, some of its words: they are all
/// made anew together, and `left` counts those that are not used up.
uint64_t position_of(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (generator.device().is_cpu()) {
    const auto data =
        at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data();
    size_t hash = c10::hash_combine(data.seed_, static_cast<size_t>(data.left_));
    for (const size_t i : {0, 1, 311, 623}) {
      hash = c10::hash_combine(hash, data.state_[i]);
    }
    return hash;
  }
  const auto state = generator.get_state();
  return checkpoint::xxh64(state.const_data_ptr(), state.nbytes());
}

} // namespace

c10::Device device_of(const OperatorInfo& info, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments;
  for (size_t i = base; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined()) {
      return stack[i].toTensor().device();
    }
    if (stack[i].isDevice()) {
      return stack[i].toDevice();
    }
  }
  return at::kCPU;
}

std::optional<at::Generator> generator_of(
    const OperatorInfo& info, const torch::jit::Stack& stack) {
  if (!info.draws) {
    return {};
  }
  const size_t base = stack.size() - info.arguments;
  for (size_t i = 0; i < info.arguments; ++i) {
    if (stack[base + i].isGenerator()) {
      return stack[base + i].toGenerator();
    }
  }
  return at::globalContext().defaultGenerator(device_of(info, stack));
}

NotedDraw::NotedDraw(const OperatorInfo& info, const torch::jit::Stack& stack) {
  if (accel::detail::match_single_device()) {
    generator_ = generator_of(info, stack);
    before_ = position_of(*generator_);
  }
}

void NotedDraw::done() {
  if (generator_ && position_of(*generator_) != before_) {
    accel::detail::ReadValues::get().add_draw(before_);
  }
}

} // namespace accel::distributed
