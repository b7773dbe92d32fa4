#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>
#include <accel/parallel/context_parallel.h>

#include "core/runtime.h"
#include "distributed/part.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace accel {
namespace {

bool contains(
    const std::vector<torch::Tensor>& tensors,
    const torch::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& one) {
    return one.is_same(tensor);
  });
}

/// Whether other tensors share its memory, through which a write would be missed.
bool is_shared(const torch::Tensor& tensor) {
  const auto* part = distributed::part_of(tensor);
  return part != nullptr
      ? part->view != nullptr
      : !tensor.has_storage() || tensor.storage().use_count() != 1 ||
          tensor.is_view();
}

void place(
    const torch::Tensor& tensor,
    distributed::Axis& axis,
    const distributed::Placement& placement) {
  const torch::NoGradGuard no_grad;
  torch::Tensor(tensor).set_data(distributed::distribute_tensor(
      tensor.detach(), distributed::DeviceMesh({&axis}), {placement}));
}

} // namespace

ContextParallelGuard Accelerator::maybe_context_parallel(
    const std::vector<torch::Tensor>& buffers,
    const std::vector<int64_t>& buffer_seq_dims,
    const std::vector<torch::Tensor>& no_restore_buffers) const {
  TORCH_CHECK(
      buffers.size() == buffer_seq_dims.size(),
      "accel: maybe_context_parallel has ", buffers.size(), " buffers and ",
      buffer_seq_dims.size(), " buffer_seq_dims. Give a dimension for each buffer.");
  for (const auto& tensor : no_restore_buffers) {
    TORCH_CHECK(
        contains(buffers, tensor),
        "accel: maybe_context_parallel: no_restore_buffers has a tensor that is not "
        "among buffers. Give it there, too.");
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& buffer = buffers[i];
    const int64_t dim = buffer_seq_dims[i];
    TORCH_CHECK(
        buffer.defined() && dim < buffer.dim() && dim >= -buffer.dim(),
        "accel: maybe_context_parallel: buffer_seq_dims[", i, "] is ", dim,
        ", and buffers[", i, "] is ",
        buffer.defined() ? "of sizes " + c10::str(buffer.sizes())
                         : std::string("undefined"),
        ". Give a dimension that the buffer has.");
    TORCH_CHECK(
        !buffer.requires_grad(),
        "accel: maybe_context_parallel: buffers[", i, "] requires gradients; only "
        "inputs can be shared out in place. Leave it out: what is computed of the "
        "others is shared out with them.");
    dims.push_back(dim < 0 ? dim + buffer.dim() : dim);
  }
  auto* axis = runtime_->sequence_axis();
  if (axis == nullptr) {
    TORCH_WARN_ONCE(
        "accel: maybe_context_parallel has no effect: no positions are shared out "
        "(accel launch --cp N, cp_size of parallelism_config).");
    return {};
  }
  std::vector<torch::Tensor> restored;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (is_shared(buffers[i])) {
      TORCH_WARN_ONCE(
          "accel: maybe_context_parallel: a buffer shares memory with another "
          "tensor and stays whole, which is right but saves nothing. Pass a tensor "
          "of its own: buffer.clone().");
      continue;
    }
    place(buffers[i], *axis, distributed::Shard(dims[i]));
    if (!contains(no_restore_buffers, buffers[i])) {
      restored.push_back(buffers[i]);
    }
  }
  return ContextParallelGuard(std::move(restored));
}

ContextParallelGuard::~ContextParallelGuard() noexcept(false) {
  // Nothing is sent while an exception is on its way: it may be of one process.
  auto* runtime = detail::Runtime::get();
  if (restored_.empty() || runtime == nullptr ||
      std::uncaught_exceptions() > exceptions_) {
    return;
  }
  auto* axis = runtime->sequence_axis();
  for (const auto& tensor : restored_) {
    place(tensor, *axis, distributed::Replicate());
  }
}

} // namespace accel
