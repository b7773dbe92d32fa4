#include <accel/accelerator.h>
#include <accel/rewriter_names.h>

#include "core/runtime.h"

#include <c10/util/Exception.h>

#include <utility>

namespace accel {
namespace {

/// Whether there is anything to bring together.
bool is_split(const Accelerator& accelerator, const char* operation) {
  if (!accelerator.use_distributed()) {
    return false;
  }
  TORCH_CHECK(
      accelerator.state().match_single_device(),
      "accel: last_batch().",
      operation,
      " needs match_single_device, where it is known which rows of the last "
      "batch each process had. Call ",
      operation,
      " inside of the loop.");
  return true;
}

} // namespace

torch::Tensor LastBatch::gather_for_metrics(const torch::Tensor& tensor) {
  return is_split(accelerator_, "gather_for_metrics")
      ? accelerator_.gather_for_metrics(tensor)
      : tensor;
}

torch::Tensor LastBatch::reduce_for_metrics(
    const torch::Tensor& tensor,
    Reduction reduction) {
  return is_split(accelerator_, "reduce_for_metrics")
      ? accelerator_.reduce_for_metrics(tensor, reduction)
      : tensor;
}

LoopBodyGuard::LoopBodyGuard() : body_(GradientState::get().begin_body()) {}

LoopBodyGuard::LoopBodyGuard(LoopBodyGuard&& other) noexcept
    : active_(std::exchange(other.active_, false)),
      body_(std::move(other.body_)) {}

LoopBodyGuard::~LoopBodyGuard() {
  if (active_) {
    GradientState::get().close_body(body_);
    GradientState::get().end_body(body_);
  }
}

torch::Tensor detail::reduce_for_metrics(
    const torch::Tensor& tensor,
    Reduction reduction) {
  return Runtime::require().reduce_for_metrics(tensor, reduction);
}

} // namespace accel
