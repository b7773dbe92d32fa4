#pragma once

#include "checkpoint/json.h"
#include "checkpoint/load_plan.h"

#include <accel/checkpoint/safetensors.h>

#include <functional>
#include <string>

namespace torch::optim {
class Optimizer;
}

namespace accel::checkpoint {

/// How the state of one of LibTorch's optimizer classes is taken apart and put
/// together.
struct OptimizerFamily {
  const char* name;
  bool (*matches)(const torch::optim::Optimizer& optimizer);
  /// Adds "param_groups" and "state" to `json`, and the tensors.
  void (*write)(
      const torch::optim::Optimizer& optimizer, Json& json, StateDict& tensors);
  /// Compares; what it returns makes the change. Of parameters that `piece_of` says
  /// are divided it makes the same part of their state.
  std::function<void()> (*prepare)(
      torch::optim::Optimizer& optimizer,
      const Json& json,
      const TensorSources& tensors,
      const PieceOf& piece_of,
      const std::string& what);
};

/// Null for a class that only its own `save` knows.
const OptimizerFamily* family_of(const torch::optim::Optimizer& optimizer);

} // namespace accel::checkpoint
