#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include "core/optimizers.h"
#include "core/runtime.h"

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

int64_t Accelerator::gradient_accumulation_steps() const {
  return GradientState::get().num_steps;
}

void Accelerator::set_gradient_accumulation_steps(int64_t steps) {
  auto& gradients = GradientState::get();
  TORCH_CHECK(
      steps >= 1, "accel: gradient_accumulation_steps is ", steps,
      ", but at least one micro-step makes a window.");
  TORCH_CHECK(
      !runtime_->in_micro_step() && !runtime_->accumulating(),
      "accel: gradient_accumulation_steps was set to ", steps,
      " in the middle of a window, of which ", gradients.num_steps,
      " micro-steps are one. Set it between two windows, outside of accumulate.");
  TORCH_CHECK(
      steps == 1 || !runtime_->registry().has_plain_optimizers(),
      "accel: gradient_accumulation_steps was set to ", steps,
      ", and an optimizer was prepared whose type is torch's, which steps every time. "
      "Make it an accel::AcceleratedOptimizer.");
  gradients.num_steps = steps;
  gradients.step = 0;
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
