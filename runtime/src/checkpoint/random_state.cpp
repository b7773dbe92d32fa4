#include <accel/checkpoint/random_state.h>

#include "checkpoint/files.h"
#include "device/accelerator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <vector>

namespace accel::checkpoint {

namespace {

constexpr const char* kCpu = "torch_cpu";

struct NamedGenerator {
  std::string name;
  at::Generator generator;
};

std::vector<NamedGenerator> default_generators() {
  std::vector<NamedGenerator> result{
      {kCpu, at::detail::getDefaultCPUGenerator()}};
  if (const auto type = accel::detail::accelerator_type()) {
    const auto kind = c10::DeviceTypeName(*type, /*lower_case=*/true);
    for (int64_t i = 0; i < accel::detail::count_devices(*type); ++i) {
      result.push_back(
          {"torch_" + kind + "_" + std::to_string(i),
           accel::detail::default_generator(
               {*type, static_cast<c10::DeviceIndex>(i)})});
    }
  }
  return result;
}

} // namespace

StateDict random_state() {
  StateDict result;
  for (auto& [name, generator] : default_generators()) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    result.insert(name, generator.get_state());
  }
  return result;
}

std::function<void()> prepare_random_state(const StateDict& state) {
  TORCH_CHECK(
      state.contains(kCpu), "The random state has no ", in_quotes(kCpu));
  std::vector<std::pair<at::Generator, at::Tensor>> changes;
  for (auto& [name, generator] : default_generators()) {
    const at::Tensor* saved = state.find(name);
    if (!saved) {
      continue;
    }
    const std::lock_guard<std::mutex> lock(generator.mutex());
    const at::Tensor current = generator.get_state();
    TORCH_CHECK(
        saved->sizes() == current.sizes() &&
            saved->scalar_type() == current.scalar_type(),
        "The random state ",
        in_quotes(name),
        " has ",
        saved->sizes(),
        " ",
        saved->scalar_type(),
        ", but this LibTorch's has ",
        current.sizes(),
        " ",
        current.scalar_type());
    // Of its own memory: generators do not take views of mappings.
    at::Tensor copy = saved->clone();
    // A generator takes apart what it is given: try it on one that does not
    // matter.
    generator.clone().set_state(copy);
    changes.emplace_back(generator, std::move(copy));
  }
  return [changes]() mutable {
    for (auto& [generator, saved] : changes) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(saved);
    }
  };
}

void load_random_state(const StateDict& state) {
  prepare_random_state(state)();
}

} // namespace accel::checkpoint
