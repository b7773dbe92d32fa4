// Examples for the reference of optimizers, schedulers and the gradient scaler.

#include <accel/accel.h>
#include <accel/optim/schedulers.h>
#include <torch/torch.h>

#include <memory>

namespace optim = accel::optim;

// @example accel::AcceleratedScheduler accel::AcceleratedOptimizer accel::optim::StepLR
void in_step(torch::nn::Linear model, accel::Accelerator& accelerator) {
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(0.1));
  accel::AcceleratedScheduler<optim::StepLR> scheduler(optimizer, /*step_size=*/10, /*gamma=*/0.5);
  accelerator.prepare(model, optimizer, scheduler);
  optimizer.step();
  scheduler.step();
  TORCH_CHECK(scheduler.inner().last_epoch() == 1 && scheduler.scheduler_name() == "accel::optim::StepLR");
  scheduler.load_scheduler(scheduler.save_scheduler());
}

// @example accel::optim::ConstantLR accel::optim::ExponentialLR accel::optim::MultiStepLR accel::optim::PolynomialLR accel::optim::CosineAnnealingLR accel::optim::LinearLR accel::optim::LinearLROptions
void curves(torch::optim::Optimizer& optimizer) {
  optim::ConstantLR constant(optimizer, /*factor=*/0.5, /*total_iters=*/5);
  optim::ExponentialLR exponential(optimizer, /*gamma=*/0.9);
  optim::MultiStepLR steps(optimizer, /*milestones=*/{30, 80}, /*gamma=*/0.1);
  optim::PolynomialLR polynomial(optimizer, /*total_iters=*/100, /*power=*/2);
  optim::CosineAnnealingLR cosine(optimizer, /*T_max=*/100, /*eta_min=*/1e-5);
  optim::LinearLR linear(
      optimizer, optim::LinearLROptions().start_factor(0.1).end_factor(1).total_iters(10));
}

// @example accel::optim::LambdaLR accel::optim::LRLambda accel::optim
void warm_up(torch::optim::Optimizer& optimizer) {
  optim::LRLambda halves = [](int64_t epoch) { return std::pow(0.5, epoch); };
  optim::LambdaLR scheduler(optimizer, halves);
  optim::LambdaLR constant(optimizer, optim::constant_with_warmup(100));
  optim::LambdaLR linear(optimizer, optim::linear_with_warmup(100, 1000));
  optim::LambdaLR cosine(optimizer, optim::cosine_with_warmup(100, 1000));
}

optim::LambdaLR one_of(torch::optim::Optimizer& optimizer, int which) {
  return which == 0 ? optim::get_constant_schedule_with_warmup(optimizer, 100)
      : which == 1  ? optim::get_linear_schedule_with_warmup(optimizer, 100, 1000)
                    : optim::get_cosine_schedule_with_warmup(optimizer, 100, 1000);
}

// @example accel::optim::SequentialLR accel::optim::LRScheduler
void one_after_the_other(torch::optim::Optimizer& optimizer) {
  optim::SequentialLR scheduler(
      optimizer,
      {std::make_shared<optim::LinearLR>(optimizer),
       std::make_shared<optim::CosineAnnealingLR>(optimizer, 95)},
      /*milestones=*/{5});
  scheduler.step();
  scheduler.restart();
}

// @example accel::optim::CosineAnnealingWarmRestarts
void restarts(torch::optim::Optimizer& optimizer) {
  optim::CosineAnnealingWarmRestarts scheduler(optimizer, /*T_0=*/10, /*T_mult=*/2);
  scheduler.step(0.25); // a quarter of an epoch
}

// @example accel::optim::OneCycleLR accel::optim::OneCycleLROptions
void one_cycle(torch::optim::Optimizer& optimizer) {
  optim::OneCycleLR scheduler(
      optimizer,
      optim::OneCycleLROptions(/*max_lr=*/0.1)
          .epochs(10).steps_per_epoch(100)
          .pct_start(0.3)
          .anneal_strategy(optim::OneCycleLROptions::Anneal::kCos)
          .cycle_momentum(true).base_momentum({0.85}).max_momentum({0.95})
          .div_factor(25).final_div_factor(1e4)
          .three_phase(false));
  TORCH_CHECK(scheduler.total_steps() == 1000);
  auto by_steps = optim::OneCycleLROptions(0.1).max_lr({0.1, 0.01}).total_steps(500);
}

// @example accel::optim::ReduceLROnPlateau accel::optim::ReduceLROnPlateauOptions
void plateau(accel::Accelerator& accelerator, torch::optim::Optimizer& optimizer, torch::Tensor loss) {
  using Options = optim::ReduceLROnPlateau::Options;
  optim::ReduceLROnPlateau scheduler(
      optimizer,
      Options()
          .mode(Options::Mode::kMin)
          .factor(0.1).patience(10)
          .threshold(1e-4).threshold_mode(Options::ThresholdMode::kRel)
          .cooldown(0).min_lr({1e-6}).eps(1e-8));
  scheduler.step(accelerator.reduce(loss, "mean").item<double>());
  accelerator.print(scheduler.last_epoch(), scheduler.get_last_lr()[0]);
  scheduler.load_state_dict(scheduler.state_dict());
  torch::serialize::OutputArchive saved;
  scheduler.save(saved);
  torch::serialize::InputArchive loaded;
  scheduler.load(loaded);
  scheduler.load_scheduler(scheduler.save_scheduler());
  TORCH_CHECK(scheduler.scheduler_name() == "ReduceLROnPlateau");
}

// @example accel::optim::LRScheduler accel::optim::SchedulerState accel::optim
void state(optim::StepLR& scheduler) {
  optim::SchedulerState state = scheduler.state_dict();
  TORCH_CHECK(state.scheduler == "StepLR" && state.options.at("gamma")[0] < 1);
  TORCH_CHECK(state.values.at("last_epoch")[0] == double(scheduler.last_epoch()));
  scheduler.load_state_dict(optim::scheduler_state_from_json(optim::to_json(state)));
  torch::serialize::OutputArchive saved;
  scheduler.save(saved);
  torch::serialize::InputArchive loaded;
  scheduler.load(loaded);
  scheduler.load_scheduler(scheduler.save_scheduler());
  scheduler.count_skipped_step();
  TORCH_CHECK(scheduler.scheduler_name() == "StepLR" && !scheduler.total_steps());
  TORCH_CHECK(scheduler.base_lrs().size() == scheduler.get_last_lr().size());
  TORCH_CHECK(scheduler.optimizer().param_groups().size() == 1);
  TORCH_CHECK(scheduler.step_count() > scheduler.last_epoch());
}

// @example accel::GradScaler accel::GradScalerOptions accel::GradScalerState
void scaled(torch::nn::Linear model, torch::optim::SGD& optimizer, torch::Tensor loss) {
  accel::GradScaler scaler(
      accel::GradScalerOptions()
          .init_scale(65536).growth_factor(2).backoff_factor(0.5).growth_interval(2000));
  scaler.scale(loss).backward();
  if (!scaler.unscaled(optimizer)) {
    scaler.unscale_(optimizer);
  }
  torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
  bool stepped = scaler.step(optimizer, [&] { optimizer.step(); });
  scaler.update();
  TORCH_CHECK(stepped == (scaler.growth_tracker() > 0));
  accel::GradScalerState state = scaler.state_dict();
  TORCH_CHECK(state.scale == scaler.get_scale() && state.growth_factor > 1);
  TORCH_CHECK(state.backoff_factor < 1 && state.growth_interval > state.growth_tracker);
  scaler.load_state_dict(state);
}
