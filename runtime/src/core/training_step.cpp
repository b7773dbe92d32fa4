#include "core/runtime.h"

#include "core/optimizers.h"
#include "core/read_values.h"
#include "distributed/lineage.h"
#include "distributed/report.h"
#include "distributed/watch.h"
#include "gradients/window.h"

#include <accel/autocast.h>
#include <accel/distributed/tensor.h>
#include <accel/detail/phase.h>
#include <accel/detail/trace.h>
#include <accel/gradient_state.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace accel::detail {

void Runtime::begin_micro_step() {
  auto& state = GradientState::get();
  had_micro_steps_ = true;
  open_steps_.push_back(
      {state.step, state.sync_gradients, !state_->match_single_device()});
  if (distributed::watch().report) {
    distributed::PlacementReport::instance().begin_step();
  }
  if (state_->match_single_device() && open_steps_.size() == 1) {
    unaccumulated_.begin(registry(), state.num_steps);
  }
  open_steps_.back().ends_pass =
      state.sync_with_dataloader && state.body_ends_pass();
  if (open_steps_.back().ends_pass) {
    state.step = 0;
    state.sync_gradients = true;
  } else {
    ++state.step;
    state.sync_gradients = state.step % state.num_steps == 0;
  }
}

void Runtime::end_micro_step() {
  const OpenStep own = std::move(open_steps_.back());
  open_steps_.pop_back();
  auto& state = GradientState::get();
  if (own.asked && !state.sync_gradients && state_->match_single_device() &&
      std::uncaught_exceptions() == 0) {
    hold_gradients(own);
  }
  const bool unaccumulated = open_steps_.empty() && unaccumulated_.found();
  if (own.learns && state.num_steps > 1 && state_->match_single_device() &&
      state_->is_main_process() &&
      (unaccumulated || learning_optimizers().empty())) {
    TORCH_WARN_ONCE(
        "accel: gradient_accumulation_steps is ",
        state.num_steps,
        ", but not every update is accumulated: what the program itself writes "
        "into parameters is written every time, and so is what an optimizer of "
        "LibTorch's own types writes. Only an accel::AcceleratedOptimizer that "
        "was passed to accelerator.prepare accumulates.");
  }
  if (!own.learns) {
    state.step = own.step;
    state.sync_gradients = own.sync_gradients;
  }
  if (distributed::watch().report) {
    distributed::PlacementReport::instance().end_step();
  }
}

void Runtime::hold_gradients(const OpenStep& step) {
  // The program leaves out the optimizers' steps itself: out of the reach of
  // `zero_grad`, which it may call every time.
  for (auto* control : learning_optimizers()) {
    if (std::find(step.optimizers.begin(), step.optimizers.end(), control) ==
        step.optimizers.end()) {
      const auto parameters =
          parameters_of(dynamic_cast<torch::optim::Optimizer&>(*control));
      Windows::of(*control).add(parameters);
      for (const auto& parameter : parameters) {
        parameter.mutable_grad().reset();
      }
    }
  }
}

void Runtime::note_learning() {
  for (auto& step : open_steps_) {
    step.learns = true;
  }
}

void Runtime::note_step(const OptimizerControl& optimizer) {
  note_learning();
  if (in_micro_step()) {
    open_steps_.back().optimizers.push_back(&optimizer);
    open_steps_.back().unused = false;
  }
}

void Runtime::note_stepped() {
  if (in_micro_step()) {
    open_steps_.back().unused = false;
  }
}

bool Runtime::holds_unused_gradients() const {
  if (!in_micro_step() || !open_steps_.back().unused) {
    return false;
  }
  // Programs that leave out a step (the loss is no number) clear its gradients.
  for (auto* control : learning_optimizers()) {
    for (const auto& parameter :
         parameters_of(dynamic_cast<torch::optim::Optimizer&>(*control))) {
      if (parameter.grad().defined()) {
        return true;
      }
    }
  }
  return false;
}

bool Runtime::has_not_learnt() const {
  return in_micro_step() && !open_steps_.back().had_backward &&
      open_steps_.back().optimizers.empty() && !learning_optimizers().empty();
}

void Runtime::note_question() {
  note_learning();
  if (in_micro_step()) {
    open_steps_.back().asked = true;
  }
}

bool Runtime::steps_now(const GradientWindow& window) const {
  const auto& state = GradientState::get();
  if (!state_->match_single_device()) {
    return state.sync_gradients;
  }
  if (!in_micro_step()) {
    return true;
  }
  if (open_steps_.back().asked) {
    return state.sync_gradients;
  }
  return open_steps_.back().ends_pass || window.completed() ||
      window.steps() + 1 >= state.num_steps;
}

void Runtime::restart_window(int64_t step) {
  note_learning(); // Nothing is as it was before.
  auto& state = GradientState::get();
  state.step = step;
  state.sync_gradients = true;
  for (auto* control : learning_optimizers()) {
    Windows::of(*control).end();
  }
}

void Runtime::check_same_batch(
    const char* operation,
    const std::vector<at::Tensor>& tensors) {
  finish_batch_check();
  if (BatchCheck::enabled()) {
    const PhaseScope own(Phase::kOwn);
    batch_check_.begin(
        communicator(), tensors, operation, CallSite::here());
  }
}

void Runtime::finish_batch_check() {
  const PhaseScope own(Phase::kOwn);
  batch_check_.end(communicator());
}

void Runtime::run_backward(
    const std::function<void()>& run,
    bool synchronize,
    bool hold,
    bool ghost) {
  BackwardPlan plan;
  plan.synchronize = synchronize && !reducer_->local();
  plan.hold = hold;
  plan.ghost = ghost;
  auto& values = ReadValues::get();
  const bool compares = plan.synchronize && compares_values() &&
      values.is_due(reducer_->met_others());
  if (compares) {
    plan.enclosed = values.begin(
        communicator(Channel::kGradients),
        world_->carries_enclosed(),
        same_parameters_.digest(reducer_->parameters().all()));
  }
  reducer_->backward(plan, run);
  if (distributed::keeps_lineages) {
    // What the reducer does to gradients is not alike on all processes: what was there
    // before is added by one of them. What the program does to them from here on is.
    for (const auto& parameter : reducer_->parameters().all()) {
      distributed::inherit_lineage(parameter->tensor.grad(), 0);
    }
  }
  if (compares) {
    auto& others = communicator(Channel::kGradients);
    if (!values.wait(others)) {
      same_parameters_.look_closer(others, reducer_->parameters().all());
    }
    values.end(others);
  }
  if (plan.synchronize && !state_->match_single_device() &&
      state_->options().broadcast_buffers) {
    broadcast_buffers();
  }
  unaveraged_ = !synchronize && !hold;
}

void Runtime::backward(
    const at::Tensor& loss,
    double weight,
    bool ghost,
    const BackwardOptions& options) {
  if (reducer_->running()) {
    // Inside of another one, in a Function's own backward: a part of that.
    loss.backward(options.gradient(), options.retain_graph(), options.create_graph());
    return;
  }
  note_learning();
  if (in_micro_step()) {
    open_steps_.back().had_backward = true;
    open_steps_.back().unused = true;
  }
  finish_batch_check();
  if (sharded_) {
    sharded_->check_plan();
  }
  if (recompute_) {
    recompute_->end();
  }
  auto& state = GradientState::get();
  if (!in_micro_step()) {
    state.note_unguarded_backward();
  }
  TORCH_CHECK(
      !(options.create_graph() && state_->use_distributed()),
      "accel: backward with create_graph is not supported with several "
      "processes, because averaged gradients have no graph. Compute gradients "
      "that enter a loss with torch::autograd::grad.");
  // In `match_single_device` the optimizers' windows divide, and tell where gradients
  // must be those of all processes: loops in each other have windows of their own.
  const bool single_device = state_->match_single_device();
  const double steps =
      single_device ? 1 : static_cast<double>(state.num_steps);
  const bool ends_window = single_device
      ? state.num_steps == 1 || !in_micro_step() || learning_optimizers().empty()
      : state.sync_gradients;
  if (!ghost && compares_values()) {
    if (distributed::is_distributed(loss)) {
      ReadValues::get().add_lineage(distributed::lineage_of(loss));
    } else {
      ReadValues::get().add_loss(loss);
    }
  }
  const double factor = ghost ? 0.0 : weight / steps;
  const bool retain_graph = options.retain_graph() || options.create_graph();
  TracedBackward traced(
      loss,
      ghost                               ? 0.0
          : distributed::is_distributed(loss) || state_->match_single_device()
          ? weight
          : weight / static_cast<double>(state_->num_processes()),
      options.gradient());
  run_backward(
      [&] {
        auto gradients = sharded_ ? sharded_->backward()
                                  : parallel::UnitGradients::Backward(nullptr);
        // Autocast is for forward passes; an operation's backward runs in the
        // precision that its forward had.
        const AutocastGuard no_autocast =
            state_->mixed_precision() == MixedPrecision::kNo
            ? AutocastGuard()
            : AutocastGuard(
                  state_->device().type(), at::kBFloat16, /*enabled=*/false);
        at::Tensor seed = options.gradient();
        TORCH_CHECK(
            seed.defined() || loss.numel() == 1,
            "accel: backward needs a loss with one element, got sizes ",
            loss.sizes());
        if (seed.defined()) {
          TORCH_CHECK(
              seed.sizes() == loss.sizes(),
              "accel: backward was given a gradient of sizes ",
              seed.sizes(),
              " for a tensor of sizes ",
              loss.sizes(),
              "; they must be the same.");
          seed = factor == 1 ? seed : seed.mul(factor);
        } else if (factor != 1 || scaler_) {
          seed = at::full_like(loss.detach(), factor);
        }
        (scaler_ ? scaler_->scale(loss) : loss)
            .backward(seed, retain_graph, options.create_graph());
        gradients.finish();
      },
      /*synchronize=*/ends_window || state.sync_each_batch,
      /*hold=*/!single_device && !ends_window,
      ghost);
  if (sharded_ && !retain_graph) {
    sharded_->settle();
  }
  traced.end(/*averaged=*/ends_window);
}

at::Tensor Runtime::whole_loss(const at::Tensor& loss) {
  finish_batch_check();
  if (!state_->use_distributed() || state_->match_single_device() ||
      distributed::is_distributed(loss)) {
    return distributed::full_tensor(loss);
  }
  // The mean over the processes whose samples count.
  const bool counts = !GradientState::get().ghost();
  auto sums = at::tensor(
      {counts ? loss.item<double>() : 0.0, counts ? 1.0 : 0.0},
      at::dtype(at::kDouble).device(state_->device()));
  communicator().all_reduce(sums);
  return sums[0].div(sums[1]).to(loss.scalar_type()).view(loss.sizes());
}

bool Runtime::accumulating() const {
  if (!state_->match_single_device()) {
    return !GradientState::get().sync_gradients || reducer_->holding();
  }
  const auto& optimizers = learning_optimizers();
  return std::any_of(
      optimizers.begin(), optimizers.end(), [](const auto* optimizer) {
        return Windows::of(*optimizer).holds();
      });
}

void Runtime::begin_local_training() {
  average_accumulated(); // What is not local.
  reducer_->set_local(true);
}

void Runtime::end_local_training() {
  reducer_->set_local(false);
  unaveraged_ = false; // The parameters have been averaged instead.
}

void Runtime::average_accumulated() {
  if (reducer_->local()) {
    return;
  }
  if (unaveraged_ || reducer_->holding()) {
    run_backward([] {}, /*synchronize=*/true, /*hold=*/false, /*ghost=*/false);
  }
}

void Runtime::note_accumulated(const std::vector<at::Tensor>& tensors) {
  reducer_->note_added(tensors);
  unaveraged_ = true;
}

void Runtime::broadcast_buffers() {
  if (state_->use_distributed() && !buffers_.empty()) {
    broadcast_all(communicator(), buffers_);
  }
}

} // namespace accel::detail
