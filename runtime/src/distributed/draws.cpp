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

at::Tensor first_tensor_of(const OperatorInfo& info, const torch::jit::Stack& stack) {
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    if (stack[base + i].isTensor()) {
      return stack[base + i].toTensor();
    }
  }
  return {};
}

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

std::optional<at::Generator> generator_of(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) {
    return {};
  }
  const size_t base = stack.size() - info.arguments;
  for (size_t i = 0; i < info.arguments; ++i) {
    if (stack[base + i].isGenerator()) {
      return stack[base + i].toGenerator();
    }
  }
  const auto tensor = first_tensor_of(info, stack);
  return at::globalContext().defaultGenerator(
      tensor.defined() ? tensor.device() : at::Device(at::kCPU));
}

NotedDraw::NotedDraw(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  if (accel::detail::match_single_device()) {
    generator_ = generator_of(op, info, stack);
    before_ = position_of(*generator_);
  }
}

void NotedDraw::done() {
  if (generator_ && position_of(*generator_) != before_) {
    accel::detail::ReadValues::get().add_draw(before_);
  }
}

} // namespace accel::distributed
