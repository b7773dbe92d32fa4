#pragma once

#include <accel/detail/communicator.h>

#include <ATen/core/Tensor.h>

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
///   loss_of(batch).backward();
///   optimizer.step();
///   local_sgd.step();
/// }
/// \endcode
///
/// It averages parameters and nothing else: do not prepare the model, or its
/// gradients are averaged in every step and nothing is gained. Every process
/// begins with the same parameters and makes the same number of `step` calls;
/// floating-point parameters only.
class ACCEL_API LocalSGD {
 public:
  /// The Accelerator's processes.
  LocalSGD(
      std::vector<at::Tensor> parameters,
      int64_t local_sgd_steps,
      bool enabled = true)
      : LocalSGD(
            detail::communicator(),
            std::move(parameters),
            local_sgd_steps,
            enabled) {}
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
};

} // namespace accel
