#include <accel/last_batch.h>

#include <accel/accelerator.h>

#include <c10/util/Exception.h>

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

} // namespace accel
