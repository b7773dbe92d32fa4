#pragma once

#include <accel/distributed/placement.h>
#include <accel/parallel/tensor_parallel.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accel::parallel {

using PlanEntries = TorchTensorParallelPlugin::Plan;

/// The plan of the argument or of `ACCEL_TP_PLAN`; empty: one is made for each
/// model. Throws `c10::Error` for a word that is none and for a text that is no
/// plan.
PlanEntries resolve_tensor_plan(
    const std::optional<TorchTensorParallelPlugin>& given);

/// "up=colwise,down=rowwise".
std::string to_text(const PlanEntries& plan);

/// One parameter and its place along the axis tp.
struct PlannedParameter {
  std::string name;
  at::Tensor tensor;
  distributed::Placement place;
};

/// What becomes of a model.
struct TensorPlan {
  /// Those that are cut.
  std::vector<PlannedParameter> cut;
  /// With sequence parallelism: the dimension in which activations lie between layers,
  /// and the parameters of norms that take them so, which are whole.
  std::optional<int64_t> sequence_dim;
  std::vector<PlannedParameter> in_positions;
};

/// Whether an entry has the word for sequence parallelism.
bool has_sequence_word(const PlanEntries& plan);

/// What becomes of a model on `processes` processes. `matched[i]` is set where
/// entry i has named a module of it. Throws where an entry cannot be honoured; on
/// all processes alike, for it depends on the model alone.
TensorPlan tensor_plan(
    const torch::nn::Module& model,
    const PlanEntries& entries,
    int64_t processes,
    std::vector<bool>& matched);

} // namespace accel::parallel
