#include <accel/accelerator.h>

#include <accel/checkpoint/processes.h>
#include <accel/data/generators.h>
#include <accel/data/place_batch.h>
#include <accel/distributed/tensor.h>
#include <accel/detail/communicator.h>
#include <accel/detail/trace.h>
#include <accel/optim/optimizer.h>
#include <accel/optim/schedulers/control.h>

#include "core/accelerator_own.h"
#include "core/early_seed.h"
#include "core/environment.h"
#include "core/named_modules.h"
#include "core/optimizers.h"
#include "core/runtime.h"
#include "core/stop_signals.h"
#include "device/accelerator.h"
#include "parallel/model_units.h"
#include "parallel/optimizer_tensors.h"

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
  for (const auto& [name, part] : detail::named_modules_of(model, "model")) {
    look(*part, name);
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

bool prints_plan() {
  return detail::get_environment_flag("ACCEL_PRINT_PLAN").value_or(false);
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

void detail::RuntimePointer::has_ended() {
  TORCH_CHECK(
      false,
      "accel: the Accelerator has ended already. What uses it must end before: "
      "behind main only prints and files that process 0 writes are possible.");
}

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
      own_(std::make_unique<Own>()) {
  own_->automatic_naming = options.automatic_checkpoint_naming();
  own_->total_limit = options.total_limit();
  own_->project_dir = options.project_dir();
  own_->options_in_force = options_in_force(options);
  own_->exceptions_at_start = std::uncaught_exceptions();
  if (state().use_distributed() && !state().match_single_device()) {
    detail::forget_early_seed();
  }
  accelerators.push_back(this);
  if (is_main_process() && prints_plan()) {
    std::cerr << plan() << std::flush;
  }
}

Accelerator::~Accelerator() {
  accelerators.erase(
      std::find(accelerators.begin(), accelerators.end(), this));
  if (accelerators.empty()) {
    const bool orderly =
        std::uncaught_exceptions() == own_->exceptions_at_start;
    if (orderly) {
      detail::TracedBackward::end_together();
    }
    runtime_->end(orderly);
  }
}

Accelerator::Accelerator(detail::AfterTheEnd)
    : trackers_(make_trackers(AcceleratorOptions(), /*main_process=*/false)),
      own_(std::make_unique<Own>()) {
}

Accelerator* Accelerator::after_the_end() {
  if (!accelerators.empty() || detail::Runtime::ended_state() == nullptr) {
    return nullptr;
  }
  // Never destroyed: it is for what is destroyed last.
  static auto* const made = new Accelerator(detail::AfterTheEnd());
  return made;
}

Accelerator& accelerator() {
  if (Accelerator* const ended = Accelerator::after_the_end()) {
    return *ended;
  }
  detail::Runtime::require();
  return *accelerators.front();
}

Accelerator& Accelerator::of_program(
    const detail::BuiltWith& program,
    const AcceleratorOptions& options) {
  if (!accelerators.empty()) {
    return *accelerators.front();
  }
  // Needs no destructor: asked by what is destroyed later.
  static bool has_ended = false;
  if (has_ended) {
    return *after_the_end();
  }
  struct Program {
    Accelerator accelerator;
    Program(const detail::BuiltWith& program, const AcceleratorOptions& options)
        : accelerator(program, options) {}
    ~Program() {
      has_ended = true;
    }
  };
  // Made when all that its end needs exists, so destroyed before that.
  static Program made(program, options);
  return made.accelerator;
}

const AcceleratorState& Accelerator::state() const {
  return runtime_ ? runtime_->state() : *detail::Runtime::ended_state();
}

distributed::DeviceMesh Accelerator::device_mesh() const {
  const auto& axes = runtime_->parallel_axes();
  return axes.empty() ? distributed::DeviceMesh()
                      : distributed::DeviceMesh(axes);
}

int64_t Accelerator::data_parallel_rank() const {
  return runtime_->rank_along("dp_replicate");
}
int64_t Accelerator::data_parallel_shard_rank() const {
  return runtime_->rank_along("dp_shard");
}
int64_t Accelerator::context_parallel_rank() const {
  return runtime_->rank_along("cp");
}
int64_t Accelerator::tensor_parallel_rank() const {
  return runtime_->rank_along("tp");
}

void Accelerator::wait_for_everyone() const {
  state().wait_for_everyone();
}

void Accelerator::wait_for_device() const {
  detail::wait_for_all_streams(device());
}

void Accelerator::begin_prepare() {
  runtime_->end_building_in_parts();
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
  if (auto* sharded = runtime_->sharded()) {
    const auto plan = sharded->add(*module, sparse);
    if (is_main_process() && prints_plan()) {
      std::cerr << plan << std::flush;
    }
  }
  for (auto* control : detail::learning_optimizers()) {
    place_states(dynamic_cast<torch::optim::Optimizer&>(*control));
  }
  if (auto* recompute = runtime_->recompute()) {
    for (const auto& unit : parallel::model_units(*module, state().options().auto_wrap)) {
      recompute->add_unit(unit);
    }
  }
  runtime_->registry().add(*module);
}

void Accelerator::place_states(torch::optim::Optimizer& optimizer) {
  if (state().options().device_placement) {
    parallel::move_beside_parameters(optimizer);
  }
  if (auto* sharded = runtime_->sharded()) {
    sharded->add(optimizer);
  }
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
        gradient_accumulation_steps() == 1 && scaler() == nullptr,
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
  place_states(*optimizer);
}

void Accelerator::prepare_scheduler(torch::optim::LRScheduler* scheduler) {
  if (dynamic_cast<detail::SchedulerControl*>(scheduler) == nullptr) {
    const auto& options = state().options();
    const bool steps_once = options.match_single_device || options.split_batches ||
        num_processes() == 1;
    TORCH_CHECK(
        !options.step_scheduler_with_optimizer ||
            (gradient_accumulation_steps() == 1 && scaler() == nullptr && steps_once),
        "accel: with gradient accumulation or fp16, and where each process has batches "
        "of its own, whether and how often a scheduler steps must be decided by accel, "
        "but one was prepared whose type is torch's. Make it an "
        "accel::AcceleratedScheduler<torch::optim::StepLR> (or which type it is), or "
        "say step_scheduler_with_optimizer(false), and it steps as often as the program "
        "says.");
    runtime_->registry().add_plain_scheduler();
  }
}

void Accelerator::set_trigger() {
  own_->trigger = true;
}

bool Accelerator::check_trigger() {
  const bool raised = detail::on_any_process(own_->trigger);
  own_->trigger = own_->trigger && !raised;
  return raised;
}

bool Accelerator::stop_requested() {
  detail::take_stop_signals();
  return detail::on_any_process(detail::stop_signal_came());
}

Profile Accelerator::profile(const ProfileOptions& options) const {
  ProfileOptions possible = options;
  if ((options.record_shapes() || options.with_flops()) && use_distributed() && state().match_single_device()) {
    if (is_main_process()) {
      TORCH_WARN(
          "accel: record_shapes and with_flops are left out of the profile: LibTorch's "
          "profiler notes the memory of each input as well, which a distributed tensor "
          "does not have. Record them with one process.");
    }
    possible.record_shapes(false).with_flops(false);
  }
  return Profile(possible, device().type());
}

void Accelerator::init_trackers(
    const std::string& project_name,
    const LogValues& config,
    const std::map<std::string, LogValues>& init_kwargs) {
  trackers_->init_trackers(project_name, config, init_kwargs);
}

void Accelerator::log(const LogValues& values, std::optional<int64_t> step) {
  trackers_->log(values, step);
}

GeneralTracker& Accelerator::get_tracker(const std::string& name) {
  return trackers_->get_tracker(name);
}

void Accelerator::end_training() {
  wait_for_checkpoint();
  trackers_->end_training();
}

} // namespace accel
