#include <accel/detail/trace.h>

#include "core/runtime.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>

namespace accel::detail {

TraceSink* TracedBackward::sink_ = nullptr;

void TracedBackward::begin(
    const at::Tensor& loss, double weight, const at::Tensor& gradient) {
  auto& runtime = Runtime::require();
  if (sink_->finished()) {
    // All processes are here: they have begun the same backward.
    sink_->end_together();
    runtime.end(/*orderly=*/true);
    sink_->leave();
  }
  const at::NoGradGuard no_grad;
  // A process without samples may have computed anything, NaN included.
  const auto value =
      gradient.defined() ? loss.detach().mul(gradient) : loss.detach();
  const double part = weight == 0 ? 0 : weight * value.sum().item<double>();
  double global = part;
  // In match_single_device the number is that of all processes already.
  if (!runtime.state().match_single_device()) {
    auto sum = at::scalar_tensor(
        part, at::dtype(at::kDouble).device(runtime.state().device()));
    runtime.communicator(Channel::kMain).all_reduce(sum);
    global = sum.item<double>();
  }
  sink_->begin(loss, global, runtime.batch_rows);
  begun_ = true;
}

} // namespace accel::detail

void accel_full_tensor(const at::Tensor* tensor, at::Tensor* whole) {
  const at::NoGradGuard no_grad;
  *whole = accel::distributed::full_tensor(*tensor);
}

bool accel_set_trace_sink(int version, accel::detail::TraceSink* sink) {
  if (version != accel::detail::kTraceSinkVersion) {
    return false;
  }
  accel::detail::TracedBackward::set_sink(sink);
  return true;
}
