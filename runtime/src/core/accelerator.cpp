#include <accel/accelerator.h>

#include <accel/checkpoint/processes.h>
#include <accel/data/generators.h>
#include <accel/data/place_batch.h>
#include <accel/distributed/tensor.h>
#include <accel/detail/communicator.h>
#include <accel/optim/optimizer.h>
#include <accel/optim/schedulers/control.h>

#include "core/environment.h"
#include "core/optimizers.h"
#include "core/runtime.h"
#include "core/stop_signals.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <exception>
#include <iostream>

namespace accel {
namespace {

/// The Accelerators that exist, the oldest first.
std::vector<Accelerator*> accelerators;

std::vector<std::pair<std::string, torch::Tensor>> named(
    const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  for (const auto& item : tensors) {
    if (item.value().defined()) {
      result.emplace_back(item.key(), item.value());
    }
  }
  return result;
}

/// Calls `visit(table, name)` for each Embedding and EmbeddingBag of the model,
/// itself among them.
template <typename Visitor>
void for_each_table(const torch::nn::Module& model, const Visitor& visit) {
  const auto look = [&](const torch::nn::Module& part, const std::string& name) {
    if (const auto* table =
            dynamic_cast<const torch::nn::EmbeddingImpl*>(&part)) {
      visit(*table, name);
    } else if (
        const auto* bag =
            dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&part)) {
      visit(*bag, name);
    }
  };
  // A model need not be held by a pointer, which `include_self` would ask for.
  look(model, "model");
  for (const auto& part :
       model.named_modules("model", /*include_self=*/false)) {
    look(*part.value(), part.key());
  }
}

/// Tables that shorten the rows that are looked up, where each process looks up
/// others. Here, because it is a better place for an error than the first step;
/// calls without a module are seen by the dispatcher (dispatch/embeddings.cpp).
template <typename Options>
void check_table(const Options& options, const std::string& name) {
  TORCH_CHECK(
      !options.max_norm().has_value(),
      "accel: prepare was given a model whose embedding '",
      name,
      "' has max_norm. It shortens the rows that are looked up, where they are "
      "looked up, so that each process would change other rows of its table. "
      "Leave max_norm out, and shorten the rows of the weight behind "
      "optimizer.step(), on all processes alike; or train with "
      "match_single_device, where the processes tell each other which rows "
      "these are.");
}

std::unique_ptr<TrackerSet> make_trackers(
    const AcceleratorOptions& options,
    bool main_process) {
  return std::make_unique<TrackerSet>(
      main_process,
      options.log_with(),
      options.logging_dir().empty() ? options.project_dir()
                                    : options.logging_dir());
}

/// Throws for what cannot be recorded before the processes meet.
const AcceleratorOptions& checked(
    const detail::BuiltWith& program,
    const AcceleratorOptions& options) {
  detail::check_built_with(program);
  make_trackers(options, /*main_process=*/false);
  TORCH_CHECK(
      !options.automatic_checkpoint_naming() || !options.project_dir().empty(),
      "accel: automatic_checkpoint_naming(true) needs a project_dir to put the "
      "checkpoints in.");
  TORCH_CHECK(
      options.total_limit() >= 0,
      "accel: total_limit is ",
      options.total_limit(),
      "; it must be positive, or 0 to keep all checkpoints.");
  return options;
}

} // namespace

void detail::check_built_with(const BuiltWith& program) {
  constexpr auto library = built_with<AcceleratorOptions>();
  const auto describe = [](const BuiltWith& built) {
    return c10::str(
        "accel ",
        built.version[0],
        ".",
        built.version[1],
        ".",
        built.version[2],
        " and LibTorch ",
        built.torch_version[0],
        ".",
        built.torch_version[1]);
  };
  TORCH_CHECK(
      std::equal(
          std::begin(program.version),
          std::end(program.version),
          library.version) &&
          std::equal(
              std::begin(program.torch_version),
              std::end(program.torch_version),
              library.torch_version) &&
          program.options_size == library.options_size,
      "accel: the program was compiled with the headers of ",
      describe(program),
      ", but libaccel was built as ",
      describe(library),
      program.options_size == library.options_size
          ? ""
          : ", and they differ in AcceleratorOptions",
      ". Compile the program again, with the headers of this library.");
}

Accelerator::Accelerator(
    const detail::BuiltWith& program,
    const AcceleratorOptions& options)
    : runtime_(detail::Runtime::share(resolve(checked(program, options)))),
      trackers_(make_trackers(options, is_main_process())),
      naming_{
          options.automatic_checkpoint_naming(),
          options.total_limit(),
          options.project_dir()},
      options_in_force_(options_in_force(options)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  accelerators.push_back(this);
  if (is_main_process() &&
      detail::get_environment_flag("ACCEL_PRINT_PLAN").value_or(false)) {
    std::cerr << plan() << std::flush;
  }
}

Accelerator::~Accelerator() {
  accelerators.erase(
      std::find(accelerators.begin(), accelerators.end(), this));
  if (accelerators.empty()) {
    runtime_->end(
        /*orderly=*/std::uncaught_exceptions() == exceptions_at_start_);
  }
}

Accelerator& accelerator() {
  detail::Runtime::require();
  return *accelerators.front();
}

const AcceleratorState& Accelerator::state() const {
  return runtime_->state();
}

void Accelerator::wait_for_everyone() const {
  state().wait_for_everyone();
}

void Accelerator::begin_prepare() {
  if (state().use_distributed() && state().match_single_device()) {
    // Whatever was drawn so far made data that all processes have, or initial
    // parameters, which are about to become process 0's.
    detail::synchronize_generators();
  }
}

void Accelerator::prepare_model(torch::nn::Module* module) {
  TORCH_CHECK(
      module != nullptr,
      "accel: prepare was given an empty module holder or a null pointer. Make "
      "the model before it is prepared.");
  std::vector<torch::Tensor> sparse;
  for_each_table(*module, [&](const auto& table, const std::string& name) {
    if (state().use_distributed() && !state().match_single_device()) {
      check_table(table.options, name);
    }
    if (table.options.sparse()) {
      sparse.push_back(table.weight);
    }
  });
  if (state().options().device_placement) {
    module->to(device());
  }
  runtime_->add_tensors(
      named(module->named_parameters()), named(module->named_buffers()), sparse);
  runtime_->registry().add(*module);
}

void Accelerator::prepare_optimizer(torch::optim::Optimizer* optimizer) {
  TORCH_CHECK(
      optimizer != nullptr,
      "accel: prepare was given a null pointer. Make the optimizer before it is "
      "prepared.");
  if (auto* control = dynamic_cast<detail::OptimizerControl*>(optimizer)) {
    auto& prepared = detail::prepared_optimizers();
    if (std::find(prepared.begin(), prepared.end(), control) ==
        prepared.end()) {
      prepared.push_back(control);
    }
  } else {
    TORCH_CHECK(
        state().options().gradient_accumulation_steps == 1 &&
            scaler() == nullptr,
        "accel: with gradient accumulation or fp16, whether an optimizer steps "
        "must be decided by accel, but one was prepared whose type is torch's. "
        "Make it an accel::AcceleratedOptimizer<torch::optim::SGD> (or which "
        "type it is), which can be used wherever the torch type can.");
    runtime_->registry().add_plain_optimizer();
  }
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& parameter : detail::parameters_of(*optimizer)) {
    tensors.emplace_back(
        "parameter " + std::to_string(tensors.size()) + " of an optimizer",
        parameter);
  }
  runtime_->add_tensors(tensors, {}, {});
}

void Accelerator::prepare_scheduler(torch::optim::LRScheduler* scheduler) {
  if (dynamic_cast<detail::SchedulerControl*>(scheduler) == nullptr) {
    runtime_->registry().add_plain_scheduler();
  }
}

bool Accelerator::optimizer_step_was_skipped() const {
  const auto& optimizers = detail::prepared_optimizers();
  return std::any_of(
      optimizers.begin(), optimizers.end(), [](const auto* optimizer) {
        return optimizer->step_was_skipped();
      });
}

bool Accelerator::check_trigger() {
  const bool raised = detail::on_any_process(trigger_);
  trigger_ = trigger_ && !raised;
  return raised;
}

bool Accelerator::stop_requested() {
  detail::take_stop_signals();
  return detail::on_any_process(detail::stop_signal_came());
}

std::vector<std::string> Accelerator::exchange_bytes(
    const std::string& bytes) const {
  return checkpoint::all_processes().exchange(bytes);
}

ProcessFirstGuard::ProcessFirstGuard(bool is_first) : is_first_(is_first) {
  if (!is_first_) {
    detail::communicator().barrier();
  }
  alone_.emplace(
      "main_process_first or local_main_process_first, which the processes run "
      "one after the other");
}

ProcessFirstGuard::~ProcessFirstGuard() {
  alone_.reset();
  if (!is_first_) {
    return;
  }
  try {
    detail::communicator().barrier();
  } catch (const std::exception& error) {
    // The next collective call tells the same as an exception.
    TORCH_WARN(
        "accel: the other processes could not be told that the first one is "
        "done: ",
        error.what());
  }
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
  return GradientState::get().sync_gradients;
}

void Accelerator::backward(
    const torch::Tensor& loss,
    Reduction /*reduction*/,
    BackwardOptions options) {
  runtime_->backward(loss, 1, GradientState::get().ghost(), options);
}

void Accelerator::backward(
    const torch::Tensor& loss,
    BackwardOptions options) {
  backward(loss, Reduction(torch::kMean), options);
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

} // namespace accel
