#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include "core/optimizers.h"
#include "core/runtime.h"

#include <algorithm>
#include <utility>

namespace accel {

JoinUnevenGuard::JoinUnevenGuard(std::optional<bool> even_batches)
    : before_(GradientState::get().join_uneven) {
  GradientState::get().join_uneven = GradientState::JoinUneven{even_batches};
}

JoinUnevenGuard::JoinUnevenGuard(JoinUnevenGuard&& other) noexcept
    : active_(std::exchange(other.active_, false)), before_(other.before_) {}

JoinUnevenGuard::~JoinUnevenGuard() {
  if (active_) {
    GradientState::get().join_uneven = before_;
  }
}

AccumulateGuard::AccumulateGuard(AutocastGuard autocast)
    : autocast_(std::move(autocast)),
      body_(GradientState::get().begin_body()) {}

AccumulateGuard::AccumulateGuard(AccumulateGuard&& other) noexcept
    : active_(std::exchange(other.active_, false)),
      autocast_(std::move(other.autocast_)),
      body_(std::move(other.body_)) {}

AccumulateGuard::~AccumulateGuard() {
  if (active_) {
    GradientState::get().close_body(body_);
    if (auto* runtime = detail::Runtime::get()) {
      runtime->end_micro_step();
      // What is known of the batch must not outlive a break.
      if (runtime->state().match_single_device() ||
          GradientState::get().uneven()) {
        GradientState::get().end_body(body_);
      }
    }
  }
}

AccumulateGuard Accelerator::begin_micro_step() {
  runtime_->begin_micro_step();
  return AccumulateGuard(autocast());
}

bool Accelerator::sync_gradients() const {
  runtime_->note_question();
  return GradientState::get().sync_gradients;
}

void Accelerator::backward(
    const torch::Tensor& loss,
    BackwardOptions options) {
  runtime_->backward(loss, 1, GradientState::get().ghost(), options);
}

void Accelerator::backward(
    const torch::Tensor& loss,
    double weight,
    BackwardOptions options) {
  TORCH_CHECK(
      weight >= 0,
      "accel: backward was given the weight ",
      weight,
      ", but it is the number of units that the loss is a mean over.");
  if (!use_distributed()) {
    runtime_->backward(loss, 1, /*ghost=*/false, options);
    return;
  }
  if (state().match_single_device() || distributed::is_distributed(loss)) {
    // A mean over the units of all processes already.
    runtime_->backward(loss, 1, /*ghost=*/false, options);
    return;
  }
  const bool ghost = GradientState::get().ghost();
  const double own = ghost ? 0 : weight;
  auto total = torch::full({1}, own, torch::kDouble);
  runtime_->communicator().all_reduce(total);
  const double sum = total.item<double>();
  TORCH_CHECK(
      sum > 0,
      "accel: backward was given the weight 0 on all processes; the loss is a "
      "mean over nothing.");
  runtime_->backward(
      loss,
      own * static_cast<double>(num_processes()) / sum,
      /*ghost=*/own == 0,
      options);
}

JoinUnevenGuard Accelerator::join_uneven_inputs(
    std::optional<bool> even_batches) {
  return JoinUnevenGuard(even_batches);
}

bool Accelerator::optimizer_step_was_skipped() const {
  const auto& optimizers = detail::learning_optimizers();
  return std::any_of(
      optimizers.begin(), optimizers.end(), [](const auto* optimizer) {
        return optimizer->step_was_skipped();
      });
}

} // namespace accel
