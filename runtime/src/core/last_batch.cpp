#include <accel/last_batch.h>

#include <accel/accelerator.h>
#include <accel/gradient_state.h>

#include <c10/util/Exception.h>

#include <utility>

namespace accel {

/// While it lives the last batch counts as the one that is being worked on.
class LastShareGuard {
 public:
  explicit LastShareGuard(GradientState& state)
      : state_(state),
        explicit_share_(state.explicit_share_),
        explicit_depth_(state.explicit_depth_),
        last_share_(state.last_share_) {
    if (last_share_) {
      state_.set_share(*last_share_);
    }
  }
  ~LastShareGuard() {
    state_.explicit_share_ = explicit_share_;
    state_.explicit_depth_ = explicit_depth_;
    state_.last_share_ = last_share_;
  }
  LastShareGuard(const LastShareGuard&) = delete;
  LastShareGuard& operator=(const LastShareGuard&) = delete;

  /// False before the first batch.
  bool known() const {
    return last_share_.has_value();
  }

 private:
  GradientState& state_;
  std::optional<BatchShare> explicit_share_;
  size_t explicit_depth_;
  std::optional<BatchShare> last_share_;
};

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
  if (!is_split(accelerator_, "gather_for_metrics")) {
    return tensor;
  }
  const LastShareGuard guard(GradientState::get());
  return guard.known() ? accelerator_.gather_for_metrics(tensor) : tensor;
}

torch::Tensor LastBatch::reduce_for_metrics(
    const torch::Tensor& tensor,
    Reduction reduction) {
  if (!is_split(accelerator_, "reduce_for_metrics")) {
    return tensor;
  }
  const LastShareGuard guard(GradientState::get());
  return guard.known() ? accelerator_.reduce_for_metrics(tensor, reduction)
                       : tensor;
}

} // namespace accel
