#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>
#include <accel/gradient_state.h>

#include "core/gathering.h"
#include "core/runtime.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace accel {
namespace {

using detail::check_alike;
using detail::Communicator;

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

at::Tensor gather_equal(Communicator& communicator, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto input = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  return at::cat(communicator.all_gather(input));
}

/// The first `counting` rows of each process, which may have different numbers
/// of them.
at::Tensor gather_counting(
    Communicator& communicator,
    const at::Tensor& tensor,
    int64_t counting) {
  const at::NoGradGuard no_grad;
  const auto counts = check_alike(
      "gather_for_metrics", communicator, {tensor}, /*first_dim=*/1, counting);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  auto sizes = tensor.sizes().vec();
  sizes[0] = most;
  auto padded = at::zeros(sizes, tensor.options());
  padded.narrow(0, 0, counting).copy_(tensor.detach().narrow(0, 0, counting));
  auto parts = communicator.all_gather(padded);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank] = parts[rank].narrow(0, 0, counts[rank]);
  }
  return at::cat(parts);
}

} // namespace

at::Tensor detail::Runtime::reduce_for_metrics(
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

torch::Tensor Accelerator::reduce_for_metrics(
    const torch::Tensor& tensor,
    Reduction reduction) {
  return runtime_->reduce_for_metrics(tensor, reduction);
}

torch::Tensor Accelerator::gather(const torch::Tensor& tensor) {
  if (!use_distributed()) {
    return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  }
  check_alike("gather", runtime_->communicator(), {tensor}, 0);
  return gather_equal(runtime_->communicator(), tensor);
}

std::vector<torch::Tensor> Accelerator::gather_rows(
    const std::vector<torch::Tensor>& tensors) {
  const auto& gradient_state = GradientState::get();
  runtime_->finish_batch_check();
  if (!use_distributed()) {
    return tensors;
  }
  std::vector<torch::Tensor> result;
  if (state().match_single_device() ||
      std::any_of(
          tensors.begin(), tensors.end(), [](const torch::Tensor& tensor) {
            return distributed::is_distributed(tensor);
          })) {
    for (const auto& tensor : tensors) {
      result.push_back(distributed::full_tensor(tensor));
    }
    return result;
  }
  auto& communicator = runtime_->communicator();
  if (gradient_state.uneven()) {
    for (const auto& tensor : tensors) {
      const auto rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
      result.push_back(gather_counting(
          communicator, rows, gradient_state.ghost() ? 0 : rows.size(0)));
    }
    return result;
  }
  check_alike("gather_for_metrics", communicator, tensors, 0);
  const int64_t remainder =
      gradient_state.end_of_dataloader() ? gradient_state.remainder() : -1;
  for (const auto& tensor : tensors) {
    auto rows = gather_equal(communicator, tensor);
    result.push_back(
        remainder > 0 ? rows.slice(0, 0, remainder) : std::move(rows));
  }
  return result;
}

torch::Tensor Accelerator::reduce(
    const torch::Tensor& tensor,
    const std::string& reduction) {
  const at::NoGradGuard no_grad;
  const bool mean = reduction == "mean";
  TORCH_CHECK(
      mean || reduction == "sum" || reduction == "max" || reduction == "min",
      "accel: reduce was given '",
      reduction,
      "'; known are sum, mean, max and min.");
  TORCH_CHECK(
      !mean || tensor.is_floating_point() || tensor.is_complex(),
      "accel: reduce cannot give the mean of ",
      tensor.scalar_type(),
      " values. Convert the tensor to floating point first.");
  auto result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  if (!use_distributed()) {
    return result;
  }
  auto& communicator = runtime_->communicator();
  check_alike("reduce", communicator, {tensor}, 0);
  if (!mean && reduction != "sum") {
    const auto all = at::stack(communicator.all_gather(result));
    return reduction == "max" ? all.amax(0) : all.amin(0);
  }
  if (result.is_floating_point()) {
    communicator.all_reduce(result);
  } else {
    // Gloo reduces some dtypes only.
    result = at::stack(communicator.all_gather(result))
                 .sum(0, /*keepdim=*/false, tensor.scalar_type());
  }
  return mean ? result.div_(num_processes()) : result;
}

torch::Tensor Accelerator::broadcast(
    torch::Tensor tensor,
    int64_t from_process) {
  const at::NoGradGuard no_grad;
  if (use_distributed()) {
    check_alike("broadcast", runtime_->communicator(), {tensor}, 0);
  }
  runtime_->communicator().broadcast(tensor, from_process);
  return tensor;
}

void Accelerator::broadcast_bytes(
    void* bytes,
    size_t size,
    int64_t from_process) const {
  auto tensor = at::from_blob(
      bytes, {static_cast<int64_t>(size)}, at::TensorOptions().dtype(at::kByte));
  if (use_distributed()) {
    check_alike("broadcast_object", runtime_->communicator(), {tensor}, 0);
  }
  if (size > 0) {
    runtime_->communicator().broadcast(tensor, from_process);
  }
}

torch::Tensor Accelerator::pad_across_processes(
    const torch::Tensor& tensor,
    int64_t dim,
    double pad_index,
    bool pad_first) {
  if (!use_distributed() || dim >= tensor.dim() || dim < -tensor.dim()) {
    return tensor;
  }
  const at::NoGradGuard no_grad;
  const auto sizes = runtime_->communicator().all_gather(
      torch::full({1}, tensor.size(dim), torch::kLong));
  const int64_t most = at::cat(sizes).max().item<int64_t>();
  if (most == tensor.size(dim)) {
    return tensor;
  }
  auto shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim < 0 ? dim + tensor.dim() : dim)] = most;
  auto padded = torch::full(shape, pad_index, tensor.options());
  padded
      .narrow(dim, pad_first ? most - tensor.size(dim) : 0, tensor.size(dim))
      .copy_(tensor);
  return padded;
}

torch::Tensor Accelerator::distribute(
    const torch::Tensor& tensor,
    int64_t dim) const {
  TORCH_CHECK(
      dim < tensor.dim() && dim >= -tensor.dim(),
      "accel: distribute cannot cut a tensor of sizes ",
      tensor.sizes(),
      " in dimension ",
      dim,
      ".");
  if (!use_distributed() || tensor.layout() != at::kStrided) {
    return tensor;
  }
  if (!distributed::is_distributed(tensor)) {
    runtime_->check_same_batch("distribute", {tensor});
    runtime_->batch_rows = tensor.size(dim);
  }
  return distributed::distribute_tensor(
      tensor,
      distributed::DeviceMesh({&runtime_->axis()}),
      {distributed::Shard(dim < 0 ? dim + tensor.dim() : dim)});
}

torch::Tensor Accelerator::full(const torch::Tensor& tensor) const {
  return distributed::full_tensor(tensor);
}

std::vector<torch::Tensor> Accelerator::shard(
    int64_t dim,
    const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const auto& tensor : tensors) {
    parts.push_back(distribute(tensor, dim));
  }
  return parts;
}

} // namespace accel
