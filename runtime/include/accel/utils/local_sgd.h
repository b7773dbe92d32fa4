#pragma once

#include <accel/detail/communicator.h>
#include <accel/detail/local_training.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

namespace accel {

/// Local SGD: every process trains on its own, and the parameters (not the
/// gradients) are averaged every `local_sgd_steps` steps and at the end of the
/// scope.
///
/// \code
/// accel::LocalSGD local_sgd(model->parameters(), 8);
/// for (auto& batch : *loader) {
///   optimizer.zero_grad();
///   accelerator.backward(loss_of(batch));
///   optimizer.step();
///   local_sgd.step();
/// }
/// \endcode
///
/// While it lives (and is enabled) gradients are not averaged, whichever backward
/// computes them, and whether the model is prepared or not; nor are buffers made
/// alike. Every process begins with the same parameters, which a prepared model has,
/// trains on batches of its own, and makes the same number of `step` calls;
/// floating-point parameters only.
class ACCEL_API LocalSGD {
 public:
  /// The Accelerator's processes. Throws with `match_single_device`, where these train
  /// one model on one batch.
  LocalSGD(
      std::vector<at::Tensor> parameters,
      int64_t local_sgd_steps,
      bool enabled = true)
      : LocalSGD(
            detail::communicator(),
            std::move(parameters),
            local_sgd_steps,
            enabled) {
    if (enabled_) {
      local_.emplace();
    }
  }
  /// Throws unless `local_sgd_steps` is at least 1. Not enabled, or with one
  /// process, it does nothing.
  LocalSGD(
      detail::Communicator& communicator,
      std::vector<at::Tensor> parameters,
      int64_t local_sgd_steps,
      bool enabled = true);
  /// Averages once more. While an exception leaves the scope nothing is sent:
  /// the other processes may not get here.
  ~LocalSGD() noexcept(false);
  LocalSGD(const LocalSGD&) = delete;
  LocalSGD& operator=(const LocalSGD&) = delete;

  /// Call it after each optimizer step. Collective every `local_sgd_steps`
  /// calls.
  void step();

 private:
  void average();

  detail::Communicator& communicator_;
  std::vector<at::Tensor> parameters_;
  int64_t steps_;
  bool enabled_;
  int64_t count_ = 0;
  int exceptions_;
  std::optional<detail::LocalTraining> local_;
};

} // namespace accel
