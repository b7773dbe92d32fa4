#include "core/unaccumulated.h"

#include "core/optimizers.h"
#include "core/registry.h"
#include "core/tensor_version.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_set>

namespace accel::detail {
namespace {

/// A copy of some of the values of a plain tensor.
at::Tensor some_values(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0 ||
      distributed::is_distributed(tensor)) {
    return {};
  }
  constexpr int64_t kMost = 64;
  const at::NoGradGuard no_grad;
  const auto flat = tensor.detach().reshape({-1});
  return flat.slice(0, 0, flat.numel(), (flat.numel() + kMost - 1) / kMost).clone();
}

} // namespace

void UnaccumulatedUpdates::begin(Registry& registry, int64_t num_steps) {
  // What a program does, it does in its first windows; later ones cost nothing.
  constexpr int64_t kWindows = 2;
  seen_.clear();
  if (done_ || num_steps == 1 || micro_steps_++ >= kWindows * num_steps) {
    return;
  }
  std::unordered_set<const c10::TensorImpl*> stepped;
  for (auto* control : learning_optimizers()) {
    for (const auto& parameter :
         parameters_of(dynamic_cast<torch::optim::Optimizer&>(*control))) {
      stepped.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (auto* model : registry.models()) {
    for (const auto& parameter : model->parameters()) {
      if (parameter.requires_grad() &&
          stepped.count(parameter.unsafeGetTensorImpl()) == 0) {
        seen_.push_back(
            {parameter, version_of(parameter), some_values(parameter)});
      }
    }
  }
}

bool UnaccumulatedUpdates::found() {
  const bool found = std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
    return seen.parameter.grad().defined() &&
        (version_of(seen.parameter) != seen.version ||
         (seen.values.defined() &&
          !at::equal(some_values(seen.parameter), seen.values)));
  });
  done_ |= found;
  seen_.clear();
  return found;
}

} // namespace accel::detail
