#include <accel/collectives.h>

#include <accel/checkpoint/processes.h>
#include <accel/distributed/tensor.h>
#include <accel/gradient_state.h>

#include "core/gathering.h"
#include "core/runtime.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

namespace accel::detail {
namespace {

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

torch::Tensor Collectives::gather(const torch::Tensor& tensor) {
  auto& runtime = Runtime::require();
  if (!runtime.state().use_distributed()) {
    return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  }
  TORCH_CHECK(
      !distributed::is_distributed(tensor),
      "accel: gather was given a distributed tensor of sizes ",
      tensor.sizes(),
      ". It has the rows of all processes already: use gather_for_metrics or "
      "full.");
  check_alike("gather", runtime.communicator(), {tensor}, 0);
  return gather_equal(runtime.communicator(), tensor);
}

std::vector<torch::Tensor> Collectives::gather_rows(
    const std::vector<torch::Tensor>& tensors) {
  auto& runtime = Runtime::require();
  const auto& gradient_state = GradientState::get();
  runtime.finish_batch_check();
  if (!runtime.state().use_distributed()) {
    return tensors;
  }
  std::vector<torch::Tensor> result;
  if (runtime.state().match_single_device() ||
      std::any_of(
          tensors.begin(), tensors.end(), [](const torch::Tensor& tensor) {
            return distributed::is_distributed(tensor);
          })) {
    for (const auto& tensor : tensors) {
      result.push_back(
          tensor.defined() ? distributed::full_tensor(tensor) : tensor);
    }
    return result;
  }
  auto& communicator = runtime.communicator();
  if (gradient_state.uneven()) {
    for (const auto& tensor : tensors) {
      const auto rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
      result.push_back(gather_counting(
          communicator, rows, gradient_state.ghost() ? 0 : rows.size(0)));
    }
    return result;
  }
  check_alike("gather_for_metrics", communicator, tensors, 0);
  const int64_t remainder = gradient_state.remainder_of_last_batch();
  for (const auto& tensor : tensors) {
    auto rows = gather_equal(communicator, tensor);
    result.push_back(
        remainder > 0 ? rows.slice(0, 0, remainder) : std::move(rows));
  }
  return result;
}

torch::Tensor Collectives::gather_for_metrics(const torch::Tensor& tensor) {
  return gather_rows({tensor})[0];
}

torch::Tensor Collectives::reduce(
    const torch::Tensor& tensor,
    const std::string& reduction) {
  auto& runtime = Runtime::require();
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
  if (distributed::is_distributed(tensor)) {
    TORCH_CHECK(
        reduction != "sum",
        "accel: reduce was given a distributed tensor to sum. Its value is that "
        "of all processes already, and a batch with fewer rows than processes, "
        "which is not distributed, would be counted by each: use item() or "
        "full.");
    return distributed::full_tensor(tensor.detach());
  }
  check_dense("reduce", tensor);
  auto result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  if (!runtime.state().use_distributed()) {
    return result;
  }
  auto& communicator = runtime.communicator();
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
  return mean ? result.div_(runtime.state().num_processes()) : result;
}

torch::Tensor Collectives::broadcast(
    torch::Tensor tensor,
    int64_t from_process) {
  auto& runtime = Runtime::require();
  const at::NoGradGuard no_grad;
  TORCH_CHECK(
      !distributed::is_distributed(tensor),
      "accel: broadcast was given a distributed tensor of sizes ",
      tensor.sizes(),
      ". All processes have its value already: use full to have all of it.");
  if (runtime.state().use_distributed()) {
    check_alike("broadcast", runtime.communicator(), {tensor}, 0);
  }
  runtime.communicator().broadcast(tensor, from_process);
  return tensor;
}

torch::Tensor Collectives::pad_across_processes(
    const torch::Tensor& tensor,
    int64_t dim,
    double pad_index,
    bool pad_first) {
  auto& runtime = Runtime::require();
  if (!runtime.state().use_distributed() || dim >= tensor.dim() ||
      dim < -tensor.dim()) {
    return tensor;
  }
  const at::NoGradGuard no_grad;
  const auto sizes = runtime.communicator().all_gather(
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

namespace {

/// Throws where the processes have objects of different types.
void check_same_type(
    const char* operation, const std::vector<std::string>& types) {
  for (size_t rank = 1; rank < types.size(); ++rank) {
    TORCH_CHECK(
        types[rank] == types[0],
        "accel: ",
        operation,
        " was called with objects of the type ",
        types[0],
        " on process 0 but of the type ",
        types[rank],
        " on process ",
        rank,
        ". All processes must call it with the same type.");
  }
}

} // namespace

void broadcast_bytes(
    void* bytes,
    size_t size,
    int64_t from_process,
    const std::string& type) {
  auto& runtime = Runtime::require();
  // What is broadcast may be the answer of a system call, whose reason is printed next.
  const int error = errno;
  auto tensor = at::from_blob(
      bytes, {static_cast<int64_t>(size)}, at::TensorOptions().dtype(at::kByte));
  if (runtime.state().use_distributed()) {
    // A hash of the type's name, so that the names are sent only where they differ.
    // No tensor: of two types the sizes would be compared first.
    const auto hash =
        static_cast<int64_t>(std::hash<std::string>()(type));
    const auto hashes = check_alike(
        "broadcast_object", runtime.communicator(), {}, 0, hash);
    if (std::any_of(hashes.begin(), hashes.end(), [&](int64_t other) {
          return other != hashes[0];
        })) {
      check_same_type(
          "broadcast_object", checkpoint::all_processes().exchange(type));
    }
  }
  if (size > 0) {
    runtime.communicator().broadcast(tensor, from_process);
  }
  errno = error;
}

std::vector<std::string> exchange_bytes(
    const std::string& bytes,
    const std::string& type) {
  // The type's name in front, with a byte that no name has behind it.
  auto parts =
      checkpoint::all_processes().exchange(type + '\0' + bytes);
  std::vector<std::string> types;
  for (auto& part : parts) {
    const size_t end = part.find('\0');
    types.push_back(part.substr(0, end));
    part.erase(0, end + 1);
  }
  check_same_type("gather_object", types);
  return parts;
}

} // namespace accel::detail
