#include "core/unaccumulated.h"

#include "core/optimizers.h"
#include "core/registry.h"

#include <algorithm>
#include <unordered_set>

namespace accel::detail {

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
        seen_.push_back({parameter, static_cast<int64_t>(parameter._version())});
      }
    }
  }
}

bool UnaccumulatedUpdates::found() {
  const bool found = std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
    return seen.parameter.grad().defined() &&
        static_cast<int64_t>(seen.parameter._version()) != seen.version;
  });
  done_ |= found;
  seen_.clear();
  return found;
}

} // namespace accel::detail
