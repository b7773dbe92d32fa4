#include "core/optimizers.h"

#include <accel/checkpoint/optimizer_state.h>
#include <accel/detail/phase.h>
#include <accel/gradient_state.h>
#include <accel/optim/scheduler.h>

#include "core/runtime.h"
#include "gradients/window.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

namespace accel::detail {
namespace {

/// `DeepSpeedPlugin::gradient_clipping`.
void clip_gradients(Runtime& runtime, torch::optim::Optimizer& optimizer) {
  const double bound = runtime.state().options().gradient_clipping;
  if (bound > 0) {
    auto* scaler = runtime.scaler();
    if (scaler != nullptr && !scaler->unscaled(optimizer)) {
      scaler->unscale_(optimizer);
    }
    torch::nn::utils::clip_grad_norm_(parameters_of(optimizer), bound);
  }
}

/// The optimizers that have one of `parameters`.
std::vector<OptimizerControl*> optimizers_of(
    const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const c10::TensorImpl*> wanted;
  for (const auto& parameter : parameters) {
    wanted.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<OptimizerControl*> result;
  for (auto* control : learning_optimizers()) {
    const auto own =
        parameters_of(dynamic_cast<torch::optim::Optimizer&>(*control));
    if (std::any_of(own.begin(), own.end(), [&](const at::Tensor& one) {
          return wanted.count(one.unsafeGetTensorImpl()) != 0;
        })) {
      result.push_back(control);
    }
  }
  return result;
}

// The lists are never destroyed: optimizers may be, at the program's end, after them.
std::vector<OptimizerControl*>& existing_optimizers() {
  static auto* optimizers = new std::vector<OptimizerControl*>();
  return *optimizers;
}

void remove(
    std::vector<OptimizerControl*>& optimizers,
    const OptimizerControl* gone) {
  optimizers.erase(
      std::remove(optimizers.begin(), optimizers.end(), gone),
      optimizers.end());
}

/// Of an optimizer that ends in the middle of a window.
void warn_of_unused_gradients(const GradientWindow& window) noexcept {
  const auto* runtime = Runtime::get();
  if (!window.holds() || runtime == nullptr || std::uncaught_exceptions() > 0 ||
      !runtime->state().is_main_process()) {
    return;
  }
  try {
    TORCH_WARN_ONCE(
        "accel: an optimizer ends with gradients that no update has used, those "
        "of its last ", window.steps(), " steps: their number is no multiple of "
        "gradient_accumulation_steps, which is ",
        GradientState::get().num_steps, ". The end of a prepared data loader ends "
        "a window as well; other loops should have so many steps, or ask "
        "accelerator.sync_gradients().");
  } catch (...) {
    // Warnings may be errors, which a destructor cannot have.
  }
}

/// Gradients that are computed in its lifetime are those of a step without
/// accumulation.
class StepOfOneBatch {
 public:
  StepOfOneBatch() {
    state_.num_steps = 1;
    state_.sync_gradients = true;
  }
  ~StepOfOneBatch() {
    state_.num_steps = num_steps_;
    state_.sync_gradients = sync_gradients_;
  }
  StepOfOneBatch(const StepOfOneBatch&) = delete;
  StepOfOneBatch& operator=(const StepOfOneBatch&) = delete;

 private:
  GradientState& state_ = GradientState::get();
  const int64_t num_steps_ = state_.num_steps;
  const bool sync_gradients_ = state_.sync_gradients;
};

} // namespace

std::vector<OptimizerControl*>& prepared_optimizers() {
  static auto* optimizers = new std::vector<OptimizerControl*>();
  return *optimizers;
}

const std::vector<OptimizerControl*>& learning_optimizers() {
  const auto* runtime = Runtime::get();
  return runtime != nullptr && runtime->state().match_single_device()
      ? existing_optimizers()
      : prepared_optimizers();
}

std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (auto& group : optimizer.param_groups()) {
    parameters.insert(
        parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

OptimizerControl::OptimizerControl()
    : window_(std::make_shared<GradientWindow>()) {
  existing_optimizers().push_back(this);
}

OptimizerControl::OptimizerControl(OptimizerControl&& other) noexcept
    : OptimizerControl() {
  *this = std::move(other);
}

OptimizerControl& OptimizerControl::operator=(
    OptimizerControl&& other) noexcept {
  step_was_skipped_ = other.step_was_skipped_;
  stepped_ = other.stepped_;
  std::swap(window_, other.window_);
  // A prepared optimizer that is moved stays prepared.
  auto& optimizers = prepared_optimizers();
  remove(optimizers, this);
  std::replace(
      optimizers.begin(),
      optimizers.end(),
      &other,
      static_cast<OptimizerControl*>(this));
  return *this;
}

OptimizerControl::~OptimizerControl() {
  warn_of_unused_gradients(*window_);
  remove(existing_optimizers(), this);
  remove(prepared_optimizers(), this);
}

GradientWindow& Windows::of(const OptimizerControl& optimizer) {
  return *optimizer.window_;
}

bool Windows::steps_now(const OptimizerControl& optimizer) {
  const auto* runtime = Runtime::get();
  return runtime == nullptr || runtime->steps_now(of(optimizer));
}

bool Windows::stepped(const OptimizerControl& optimizer) {
  return optimizer.stepped_;
}

void Windows::complete(OptimizerControl& optimizer) {
  auto* runtime = Runtime::get();
  if (of(optimizer).steps() > 0) {
    const auto parameters =
        parameters_of(dynamic_cast<torch::optim::Optimizer&>(optimizer));
    if (of(optimizer).complete(parameters)) {
      runtime->note_accumulated(parameters);
    }
  }
  runtime->average_accumulated();
}

bool complete_windows(const std::vector<at::Tensor>& parameters) {
  const auto controls = optimizers_of(parameters);
  if (!std::all_of(controls.begin(), controls.end(), [](const auto* control) {
        return Windows::steps_now(*control);
      })) {
    return false;
  }
  for (auto* control : controls) {
    Windows::complete(*control);
  }
  return true;
}

at::Tensor mean_of_window(const at::Tensor& parameter) {
  const auto controls = optimizers_of({parameter});
  return controls.empty() ? parameter.grad()
                          : Windows::of(*controls.front()).mean(parameter);
}

namespace {

/// A step that accumulates nothing, since nothing says where a step begins.
void warn_of_unguarded_step(const Runtime& runtime) {
  const bool unguarded = runtime.state().match_single_device()
      ? !runtime.in_micro_step()
      : !runtime.has_had_micro_steps();
  if (unguarded && GradientState::get().num_steps > 1 &&
      runtime.state().is_main_process()) {
    TORCH_WARN_ONCE(
        "accel: gradient_accumulation_steps is ",
        GradientState::get().num_steps,
        ", and an optimizer steps outside of accumulate, for every batch. Begin the "
        "body of the loop with `auto step = accelerator.accumulate(model);`, which must "
        "live until the optimizer has stepped.");
  }
}

} // namespace

at::Tensor OptimizerControl::run_step(
    torch::optim::Optimizer& optimizer,
    Closure closure,
    const std::function<at::Tensor(Closure)>& inner) {
  auto* runtime = Runtime::get();
  if (runtime == nullptr) {
    return inner(std::move(closure));
  }
  runtime->note_step(*this);
  const auto& state = GradientState::get();
  auto* scaler = runtime->scaler();
  TORCH_CHECK(
      closure == nullptr || scaler == nullptr,
      "accel: an optimizer step with a closure computes its own gradients, so "
      "it cannot be combined with fp16. Train in bf16, or without.");
  const bool single_device = runtime->state().match_single_device();
  if (closure != nullptr && state.num_steps > 1) {
    TORCH_CHECK(
        single_device,
        "accel: an optimizer step with a closure computes its own gradients, so "
        "it cannot be combined with gradient accumulation.");
    if (runtime->state().is_main_process()) {
      TORCH_WARN_ONCE(
          "accel: an optimizer step with a closure computes its own gradients: it "
          "is made for every batch, and accumulates nothing.");
    }
  }
  if (closure == nullptr) {
    warn_of_unguarded_step(*runtime);
  }
  stepped_ =
      (closure != nullptr && single_device) || Windows::steps_now(*this);
  if (!stepped_) {
    if (single_device) {
      window_->add(parameters_of(optimizer));
    }
    return {};
  }
  const auto update = [&](bool at_once, const Closure& with) {
    const auto* offload = runtime->optimizer_offload();
    return offload == nullptr
        ? inner(with)
        : offload->step(optimizer, at_once, [&] { return inner(with); });
  };
  at::Tensor result;
  step_was_skipped_ = false;
  const PhaseScope updating(Phase::kUpdating);
  if (closure != nullptr) {
    const StepOfOneBatch one;
    result = update(/*at_once=*/true, [&] {
      const PhaseScope training(Phase::kTraining);
      const auto loss = closure();
      runtime->reducer().check_averaged(parameters_of(optimizer));
      clip_gradients(*runtime, optimizer);
      // What the optimizer decides by the loss, all processes must decide.
      return loss.defined() ? runtime->whole_loss(loss) : loss;
    });
  } else {
    Windows::complete(*this);
    runtime->reducer().check_averaged(parameters_of(optimizer));
    clip_gradients(*runtime, optimizer);
    const auto step = [&] { result = update(/*at_once=*/false, nullptr); };
    if (scaler != nullptr) {
      step_was_skipped_ = !scaler->step(optimizer, step);
      scaler->update();
    } else {
      step();
    }
    window_->end();
  }
  runtime->note_stepped();
  runtime->reducer().note_step(parameters_of(optimizer));
  if (auto* sharded = runtime->sharded()) {
    sharded->settle();
  }
  if (runtime->state().mixed_precision() != MixedPrecision::kNo) {
    // Autocast keeps copies of the weights, which are stale now.
    at::autocast::clear_cache();
  }
  return result;
}

int64_t scheduler_steps(const OptimizerControl* optimizer) {
  const auto* runtime = Runtime::get();
  if (runtime == nullptr) {
    return 1;
  }
  const auto& options = runtime->state().options();
  const bool single_device = options.match_single_device;
  if (!options.step_scheduler_with_optimizer ||
      (single_device && !runtime->in_micro_step())) {
    return 1;
  }
  const bool stepped = single_device && optimizer != nullptr
      ? Windows::stepped(*optimizer)
      : GradientState::get().sync_gradients;
  if (!stepped || (optimizer != nullptr && optimizer->step_was_skipped())) {
    return 0;
  }
  return single_device || options.split_batches
      ? 1
      : runtime->state().num_processes();
}

bool scheduler_counts_micro_step() {
  const auto* runtime = Runtime::get();
  if (runtime == nullptr) {
    return false;
  }
  const auto& options = runtime->state().options();
  return options.adjust_scheduler && options.step_scheduler_with_optimizer &&
      !options.match_single_device && !GradientState::get().sync_gradients;
}

std::string step_count_of(const torch::optim::LRScheduler& scheduler) {
  return checkpoint::scheduler_state(scheduler);
}

void set_step_count(
    torch::optim::LRScheduler& scheduler,
    const std::string& state) {
  checkpoint::load_scheduler_state(scheduler, state);
}

void throw_scheduler_without_state(const std::string& name) {
  TORCH_CHECK(
      false,
      "accel: the scheduler ",
      name,
      " cannot be part of a checkpoint: what it counts is not known. Give it "
      "save(torch::serialize::OutputArchive&) const and "
      "load(torch::serialize::InputArchive&), or use one of accel::optim.");
}

} // namespace accel::detail
