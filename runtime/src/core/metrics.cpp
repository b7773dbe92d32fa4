#include <accel/accelerator.h>
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
using detail::gather_parts;

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
  const auto share = share_for("reduce_for_metrics");
  if (!state_->use_distributed() ||
      (!share && state_->match_single_device())) {
    return tensor;
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
  const bool uneven = !share && gradient_state.uneven();
  double weight =
      share ? share->weight() : 1.0 / static_cast<double>(state_->num_processes());
  if (uneven) {
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
  if (share ? share->ghost() : gradient_state.ghost()) {
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

int64_t Accelerator::global_batch_size(const torch::Tensor& tensor) const {
  TORCH_CHECK(
      tensor.dim() > 0,
      "accel: global_batch_size was given a scalar; give it a tensor whose "
      "leading dimension is the batch.");
  const auto share = runtime_->share_for("global_batch_size");
  if (!share || !use_distributed()) {
    return tensor.size(0);
  }
  TORCH_CHECK(
      tensor.size(0) % share->rows() == 0,
      "accel: global_batch_size was given a tensor of sizes ",
      tensor.sizes(),
      ", but this process has ",
      share->rows(),
      " of the ",
      share->global,
      " rows of the batch. Give it a tensor of the current batch.");
  return tensor.size(0) / share->rows() * share->global;
}

int64_t Accelerator::local_batch_size(int64_t global) const {
  const auto share = GradientState::get().share();
  if (!share || !use_distributed() || global < 0) {
    return global;
  }
  TORCH_CHECK(
      share->global > 0 && global % share->global == 0,
      "accel: local_batch_size was given ",
      global,
      ", but the batch has ",
      share->global,
      " rows. Shapes of a batch must be written with its real size, or a "
      "multiple: give it the size that the batch has on one device.");
  return global / share->global * share->rows();
}

torch::Tensor Accelerator::squeeze(const torch::Tensor& tensor) const {
  const auto share = GradientState::get().share();
  if (!share || !use_distributed() || share->global <= 1 ||
      tensor.dim() == 0 || tensor.size(0) != 1) {
    return tensor.squeeze();
  }
  std::vector<int64_t> others;
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 1) {
      others.push_back(dim);
    }
  }
  return tensor.squeeze(others);
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
  const auto share = runtime_->share_for("gather_for_metrics");
  if (!use_distributed() || (!share && state().match_single_device())) {
    return tensors;
  }
  auto& communicator = runtime_->communicator();
  std::vector<torch::Tensor> result;
  if (!share && gradient_state.uneven()) {
    for (const auto& tensor : tensors) {
      const auto rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
      result.push_back(gather_counting(
          communicator, rows, gradient_state.ghost() ? 0 : rows.size(0)));
    }
    return result;
  }
  if (!share) {
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
  // A batch of one sample: what squeeze() made of its row is that of the first
  // process, as on one device.
  if (share->global == 1) {
    auto rows = tensors;
    for (auto& tensor : rows) {
      tensor = tensor.unsqueeze(0);
    }
    check_alike("gather_for_metrics", communicator, rows, 1);
    for (const auto& tensor : rows) {
      result.push_back(gather_parts(communicator, tensor, 1, 1).squeeze(0));
    }
    return result;
  }
  for (const auto& tensor : tensors) {
    TORCH_CHECK(
        tensor.dim() > 0 && tensor.size(0) % share->rows() == 0,
        "accel: gather_for_metrics was given a tensor of sizes ",
        tensor.sizes(),
        ", but this process has ",
        share->rows(),
        " of the ",
        share->global,
        " rows of the batch. Give it tensors with a row, or a fixed number of "
        "rows, for each sample; a number computed from the batch goes through "
        "reduce_for_metrics.");
  }
  // How many rows there are for each sample must be the same everywhere.
  std::vector<torch::Tensor> per_sample;
  for (const auto& tensor : tensors) {
    per_sample.push_back(tensor.detach().unflatten(
        0, at::IntArrayRef{share->rows(), tensor.size(0) / share->rows()}));
  }
  check_alike("gather_for_metrics", communicator, per_sample, 1);
  for (const auto& tensor : tensors) {
    result.push_back(gather_parts(
        communicator,
        tensor,
        share->global,
        tensor.size(0) / share->rows()));
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

torch::Tensor Accelerator::shard_state(const torch::Tensor& state, int64_t dim)
    const {
  TORCH_CHECK(
      dim < state.dim() && dim >= -state.dim(),
      "accel: shard_state cannot split a state of sizes ",
      state.sizes(),
      " on dimension ",
      dim,
      ". Name the dimension that counts the samples: 1 for the states of "
      "torch::nn::RNN, GRU and LSTM.");
  if (!use_distributed()) {
    return state;
  }
  const auto share =
      BatchShare::of(state.size(dim), process_index(), num_processes());
  return state.narrow(dim, share.offset, share.rows());
}

std::vector<torch::Tensor> Accelerator::shard(
    int64_t dim,
    const std::vector<torch::Tensor>& tensors) {
  const auto& first = tensors.front();
  for (const auto& tensor : tensors) {
    TORCH_CHECK(
        tensor.dim() > 0 && dim < tensor.dim() && dim >= -tensor.dim(),
        "accel: shard_batch cannot split a tensor of sizes ",
        tensor.sizes(),
        " on dimension ",
        dim,
        ".");
    TORCH_CHECK(
        tensor.size(dim) == first.size(dim),
        "accel: shard_batch was given tensors of sizes ",
        first.sizes(),
        " and ",
        tensor.sizes(),
        ", which do not agree on dimension ",
        dim,
        ". Split what belongs to one batch in one call.");
  }
  const int64_t global = first.size(dim);
  if (!use_distributed()) {
    GradientState::get().set_share({global, 0, global});
    return tensors;
  }
  TORCH_CHECK(
      global > 0,
      "accel: shard_batch was given an empty batch, of sizes ",
      first.sizes(),
      ".");
  // Losses and metrics are weighted by the parts of one batch: a second one of
  // another size would give wrong numbers for the first.
  const auto current = GradientState::get().share();
  TORCH_CHECK(
      !runtime_->in_micro_step() || !current || current->global == global,
      "accel: shard_batch was given a batch of ",
      global,
      " rows, but this step works on one of ",
      current ? current->global : 0,
      " rows. Batches of one step must have equally many rows; train on them "
      "in steps of their own.");
  runtime_->check_same_batch("shard_batch", tensors);
  const auto share = BatchShare::of(global, process_index(), num_processes());
  GradientState::get().set_share(share);
  std::vector<torch::Tensor> parts;
  for (const auto& tensor : tensors) {
    parts.push_back(tensor.narrow(dim, share.offset, share.rows()));
  }
  return parts;
}

} // namespace accel
