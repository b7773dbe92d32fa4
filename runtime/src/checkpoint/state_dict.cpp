#include "checkpoint/files.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/safetensors_write.h"

#include <accel/checkpoint/state_dict.h>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <unordered_map>

namespace accel::checkpoint {

namespace {

void collect(
    const torch::nn::Module& module,
    const std::string& prefix,
    StateDict& result) {
  // What is registered without a value (a bias that was switched off, the
  // statistics of InstanceNorm) is no part of Python's state dicts either.
  const auto insert = [&](const auto& items) {
    for (const auto& item : items) {
      if (item.value().defined()) {
        result.insert(prefix + item.key(), item.value());
      }
    }
  };
  insert(module.named_parameters(/*recurse=*/false));
  insert(module.named_buffers(/*recurse=*/false));
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", result);
  }
}

} // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict result;
  collect(module, "", result);
  return result;
}

StateDict without_shared(const StateDict& tensors) {
  StateDict result;
  std::unordered_multimap<const void*, at::Tensor> seen;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    const bool has_data = tensor.defined() && tensor.has_storage() &&
                          !tensor.is_meta() && tensor.numel() > 0;
    if (has_data) {
      const auto [begin, end] = seen.equal_range(tensor.const_data_ptr());
      auto found = begin;
      while (found != end && !same_tensor(found->second, tensor)) {
        ++found;
      }
      if (found != end) {
        continue;
      }
      seen.emplace(tensor.const_data_ptr(), tensor);
    }
    result.insert(item.key(), tensor);
  }
  if (const auto overlap = find_overlap(result)) {
    TORCH_CHECK(
        false,
        "Tensors ",
        in_quotes(overlap->first),
        " and ",
        in_quotes(overlap->second),
        " overlap in memory without being the same tensor; a file could not "
        "tell. clone() one of them.");
  }
  return result;
}

IncompatibleKeys load_state_dict(
    torch::nn::Module& module,
    const StateDict& tensors,
    const LoadOptions& options) {
  TensorSources sources;
  add_sources(sources, tensors);
  LoadPlan plan(
      state_dict(module), std::move(sources), options, "The state dict");
  plan.apply();
  return plan.incompatible();
}

} // namespace accel::checkpoint
