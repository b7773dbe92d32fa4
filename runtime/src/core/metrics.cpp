#include <accel/distributed/tensor.h>
#include <accel/gradient_state.h>

#include "core/gathering.h"
#include "core/runtime.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace accel::detail {
namespace {

/// Sums `value` (one element, float64 or int64) over the processes in the
/// message that compares the tensors that it was made from.
void sum_one(
    Communicator& communicator,
    const at::Tensor& tensor,
    at::Tensor& value) {
  // The bits travel, whatever they are.
  const auto bits = value.view(at::kLong).item<int64_t>();
  auto all = at::tensor(
      check_alike("reduce_for_metrics", communicator, {tensor}, 0, bits),
      at::kLong);
  value.copy_(all.view(value.scalar_type()).sum());
}

} // namespace

at::Tensor Runtime::reduce_for_metrics(
    const at::Tensor& tensor,
    Reduction reduction) {
  finish_batch_check();
  if (!state_->use_distributed() || state_->match_single_device() ||
      distributed::is_distributed(tensor)) {
    return distributed::full_tensor(tensor);
  }
  const at::NoGradGuard no_grad;
  const bool mean = std::holds_alternative<torch::enumtype::kMean>(reduction);
  const bool integral =
      at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  TORCH_CHECK(
      !tensor.is_complex() && tensor.scalar_type() != at::kBool &&
          !(mean && integral),
      "accel: reduce_for_metrics cannot compute the ",
      mean ? "mean" : "sum",
      " of ",
      tensor.scalar_type(),
      " values. Give it a floating-point tensor, or torch::kSum for counts.");
  // In float64, exact for counts up to 2^53; integers stay integers.
  auto value =
      tensor.detach().to(integral ? at::kLong : at::kDouble, false, true)
          .contiguous();
  const auto& gradient_state = GradientState::get();
  double weight = 1.0 / static_cast<double>(state_->num_processes());
  if (gradient_state.uneven()) {
    const auto counting = check_alike(
        "reduce_for_metrics",
        communicator(),
        {tensor},
        0,
        gradient_state.ghost() ? 0 : 1);
    weight = 1.0 /
        static_cast<double>(
            std::count(counting.begin(), counting.end(), int64_t{1}));
  }
  if (gradient_state.ghost()) {
    value.zero_(); // not multiplied: a row that does not count may give NaN
  } else if (mean) {
    value.mul_(weight);
  }
  if (value.numel() == 1) {
    sum_one(communicator(), tensor, value);
  } else {
    check_alike("reduce_for_metrics", communicator(), {tensor}, 0);
    communicator().all_reduce(value);
  }
  return value.to(tensor.scalar_type());
}

} // namespace accel::detail
