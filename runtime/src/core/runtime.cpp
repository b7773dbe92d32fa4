#include "core/runtime.h"

#include "checkpoint/load_plan.h"

#include <accel/data/generators.h>
#include <accel/data/place_batch.h>

#include "core/device_mesh.h"
#include "core/environment.h"
#include "core/read_values.h"
#include "core/stop_signals.h"
#include "device/accelerator.h"
#include "dispatch/install.h"
#include "distributed/lineage.h"
#include "distributed/report.h"
#include "distributed/watch.h"
#include "parallel/megatron_options.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace accel {
namespace {

/// Read from the loop's thread and from autograd's; written only while an
/// Accelerator is made or ends.
std::atomic<detail::Runtime*> current{nullptr};

/// What is known of this process when it has ended. Never destroyed: for what is
/// destroyed last.
std::unique_ptr<AcceleratorState>& last_state() {
  static auto* const state = new std::unique_ptr<AcceleratorState>;
  return *state;
}

/// The same for those who share it.
std::weak_ptr<detail::Runtime> shared;

detail::DeviceChoice choose_own_device(
    const detail::Environment& environment, const ResolvedOptions& options) {
  detail::DeviceSituation situation;
  situation.cpu = options.cpu;
  situation.backend = detail::get_environment("ACCEL_BACKEND");
  if (const auto type = options.cpu ? std::nullopt : detail::accelerator_type()) {
    situation.type = *type;
    situation.visible = detail::count_devices(*type);
    if (environment.distributed() && situation.backend != "gloo") {
      situation.without_backend = detail::why_no_backend(*type);
    }
  }
  if (const char* variable = detail::visible_devices_variable(situation.type)) {
    situation.visible_devices = detail::get_environment(variable);
  }
  situation.local_rank = environment.local_rank;
  situation.local_world_size = environment.local_world_size;
  situation.world_size = environment.world_size;
  return detail::choose_device(situation);
}

PartialState make_process_state(
    const detail::Environment& environment,
    const ResolvedOptions& options,
    c10::Device device) {
  TORCH_CHECK(
      options.mixed_precision != MixedPrecision::kFP16 || !device.is_cpu(),
      "accel: mixed_precision is fp16, but this process computes on the CPU, "
      "where fp16 has no gradient scaling. Use bf16 or no.");
  return {
      device,
      environment.rank,
      environment.world_size,
      environment.local_rank,
      environment.local_world_size};
}

/// The texts of all processes, by rank. Collective.
std::vector<std::string> all_texts(
    detail::Communicator& communicator, const std::string& text) {
  const auto sizes = communicator.all_gather(
      at::full({1}, static_cast<int64_t>(text.size()), at::kLong));
  const auto most = at::cat(sizes).max().item<int64_t>();
  std::string padded = text;
  padded.resize(static_cast<size_t>(most));
  const auto all = communicator.all_gather(
      at::from_blob(padded.data(), {most}, at::TensorOptions().dtype(at::kByte)));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    texts.emplace_back(
        reinterpret_cast<const char*>(all[rank].const_data_ptr<uint8_t>()),
        static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

/// "name=value, …" as "name" and "value"; a value may have commas.
std::vector<std::pair<std::string, std::string>> entries_of(
    const std::string& text) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(", ", begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == part.npos && !entries.empty()) {
      entries.back().second += ", " + part;
    } else {
      entries.emplace_back(
          part.substr(0, equals),
          equals == part.npos ? "" : part.substr(equals + 1));
    }
    begin = end + 2;
  }
  return entries;
}

/// What differs in the options of process 0 and process `rank`.
std::string other_options(
    const std::string& first, const std::string& other, size_t rank) {
  std::map<std::string, std::string> theirs;
  for (auto& [name, value] : entries_of(other)) {
    theirs.emplace(name, value);
  }
  std::string text;
  for (const auto& [name, value] : entries_of(first)) {
    const std::string& their = theirs[name];
    if (their != value) {
      text += (text.empty() ? "" : "; ") + name + " is " + value +
          " on process 0 and " + their + " on process " + std::to_string(rank);
    }
  }
  return text.empty() ? first + "; and " + other : text;
}

} // namespace

const char* to_string(DistributedType type) {
  switch (type) {
    case DistributedType::kNo:
      return "NO";
    case DistributedType::kMultiCPU:
      return "MULTI_CPU";
    case DistributedType::kMultiGPU:
      return "MULTI_GPU";
  }
  return "unknown";
}

PartialState::PartialState(
    c10::Device device,
    int64_t process_index,
    int64_t num_processes,
    int64_t local_process_index,
    int64_t local_num_processes)
    : device_(device),
      process_index_(process_index),
      num_processes_(num_processes),
      local_process_index_(local_process_index),
      local_num_processes_(local_num_processes) {}

DistributedType PartialState::distributed_type() const {
  if (num_processes_ == 1) {
    return DistributedType::kNo;
  }
  return device_.is_cpu() ? DistributedType::kMultiCPU
                          : DistributedType::kMultiGPU;
}

void PartialState::wait_for_everyone() const {
  detail::communicator().barrier();
}

namespace detail {

void Runtime::enter_batch(int64_t rows) {
  batch_rows = rows;
  if (distributed::watch().report) {
    distributed::PlacementReport::instance().add_batch(rows);
  }
}

Runtime::Runtime(const ResolvedOptions& options) {
  const Environment environment = read_environment();
  sizes_ = options.fill_mesh
      ? parallel::fill_mesh(
            *options.parallelism, options.fsdp, environment.world_size)
      : parallel::sizes_of_launch(
            options.parallelism, options.fsdp, environment);
  named_axes_ = parallel::axes_of(sizes_);
  const DeviceChoice choice = choose_own_device(environment, options);
  state_ = std::make_unique<AcceleratorState>(
      make_process_state(environment, options, choice.device), options);
  if (options.cpu_offload && choice.device.is_cpu() && state_->is_main_process()) {
    std::cerr << "accel: cpu_offload is asked for: the processes compute on CPUs, where "
                 "parameters, gradients and optimizer states lie in the host's memory "
                 "anyway.\n";
  }
  optimizer_offload_ = make_offload(
      options.offload.optimizer || options.cpu_offload,
      options.offload.optimizer_folder);
  // Before anything is put on a device, and before groups over devices are
  // made.
  use_device(choice.device);
  world_ = World::connect(environment, make_placement(choice), options.timeout);
  check_options_agree();
  axis_ = new_axis(
      communicator(Channel::kOperators), next_mesh(), /*index=*/0,
      options.parallelism && named_axes_.size() == 1 ? named_axes_[0].name : "");
  if (distributed::watch().report && state_->is_main_process()) {
    distributed::PlacementReport::instance().expect(state_->num_processes());
  }
  ReadValues::get().restart();
  distributed::keep_lineages(compares_values());
  auto& gradient_state = GradientState::get();
  gradient_state.reset();
  gradient_state.num_steps = options.gradient_accumulation_steps;
  gradient_state.sync_with_dataloader = options.sync_with_dataloader;
  gradient_state.adjust_scheduler = options.adjust_scheduler;
  gradient_state.sync_each_batch = options.sync_each_batch;
  ReducerOptions reducer;
  reducer.bucket_bytes = static_cast<int64_t>(
      std::ceil(options.bucket_cap_mb * static_cast<double>(1 << 20)));
  if (options.comm_hook != CommHook::kNo) {
    reducer.compression =
        options.comm_hook == CommHook::kFP16 ? at::kHalf : at::kBFloat16;
  }
  reducer.plain_is_whole = options.match_single_device;
  reducer_ = std::make_unique<Reducer>(
      communicator(Channel::kMain),
      communicator(Channel::kGradients),
      reducer);
  if (options.mixed_precision == MixedPrecision::kFP16) {
    scaler_ = std::make_unique<GradScaler>(options.grad_scaler);
  }
  if (environment.distributed()) {
    install_table_kernels();
  }
  if (options.match_single_device && environment.distributed()) {
    adopt_main_process_generators(
        communicator(Channel::kMain), state_->device());
  }
}

Runtime::~Runtime() {
  end(/*orderly=*/false);
}

void Runtime::check_options_agree() {
  const auto& options = state_->options();
  auto mine = at::tensor(
      {static_cast<int64_t>(options.match_single_device),
       static_cast<int64_t>(options.mixed_precision),
       options.gradient_accumulation_steps,
       static_cast<int64_t>(options.split_batches),
       static_cast<int64_t>(options.even_batches),
       options.dispatch_batches
           ? static_cast<int64_t>(*options.dispatch_batches)
           : int64_t{-1},
       static_cast<int64_t>(options.load_whole_batches),
       static_cast<int64_t>(options.sync_with_dataloader),
       static_cast<int64_t>(options.sync_each_batch),
       static_cast<int64_t>(options.comm_hook),
       static_cast<int64_t>(std::ceil(options.bucket_cap_mb * 1024)),
       static_cast<int64_t>(options.broadcast_buffers),
       options.fsdp ? static_cast<int64_t>(*options.fsdp) : int64_t{-1},
       static_cast<int64_t>(std::hash<std::string>()(to_string(options.auto_wrap))),
       static_cast<int64_t>(options.cpu_offload),
       static_cast<int64_t>(options.offload.optimizer) +
           2 * static_cast<int64_t>(options.offload.parameters),
       static_cast<int64_t>(options.forward_prefetch.value_or(false)) +
           (options.forward_prefetch ? 2 : 0),
       options.backward_prefetch
           ? static_cast<int64_t>(*options.backward_prefetch)
           : int64_t{-1},
       static_cast<int64_t>(options.activation_checkpointing),
       options.reduce_dtype ? static_cast<int64_t>(*options.reduce_dtype) : int64_t{-1},
       static_cast<int64_t>(options.state_dict_type),
       static_cast<int64_t>(
           std::hash<double>()(options.gradient_clipping)),
       static_cast<int64_t>(options.zero3_init),
       sizes_.dp_replicate,
       sizes_.dp_shard,
       sizes_.cp,
       sizes_.sp,
       sizes_.tp,
       static_cast<int64_t>(
           std::hash<std::string>()(parallel::to_text(options.tp_plan))),
       static_cast<int64_t>(options.save_on_each_node),
       static_cast<int64_t>(state_->device().type())},
      at::kLong);
  const auto all = communicator(Channel::kMain).all_gather(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (at::equal(all[rank], all[0])) {
      continue;
    }
    const auto texts = all_texts(
        communicator(Channel::kMain),
        to_string(options) + ", device=" + state_->device().str() +
            ", mesh=" + to_string(sizes_));
    TORCH_CHECK(
        false,
        "accel: processes 0 and ",
        rank,
        " were started with different options: ",
        other_options(texts[0], texts[rank], rank),
        ". Give all processes the same options and the same ACCELERATE_* and "
        "ACCEL_* environment variables.");
  }
}

Runtime* Runtime::get() {
  return current.load(std::memory_order_acquire);
}

const AcceleratorState* Runtime::ended_state() {
  return get() == nullptr ? last_state().get() : nullptr;
}

const AcceleratorState& Runtime::output_state() {
  const auto* ended = ended_state();
  return ended != nullptr ? *ended : require().state();
}

Runtime& Runtime::require() {
  Runtime* runtime = get();
  TORCH_CHECK(
      runtime != nullptr,
      "accel: there is no Accelerator. Make one first, at the top of main: "
      "accel::Accelerator accelerator; it must outlive everything that uses "
      "it.");
  return *runtime;
}

std::shared_ptr<Runtime> Runtime::share(const ResolvedOptions& options) {
  if (auto existing = shared.lock()) {
    TORCH_CHECK(
        existing->state().options() == options,
        "accel: an Accelerator exists already, with other options. The first: ",
        to_string(existing->state().options()),
        ". This one: ",
        to_string(options),
        ". Use accel::accelerator() to reach the first.");
    return existing;
  }
  auto made = std::make_shared<Runtime>(options);
  shared = made;
  current.store(made.get(), std::memory_order_release);
  made->connect_axes();
  return made;
}

int64_t Runtime::rank_along(const char* name) const {
  for (size_t i = 0; i < named_axes_.size(); ++i) {
    if (named_axes_[i].name == name) {
      return parallel_axes_[i]->rank();
    }
  }
  return 0;
}

std::optional<parallel::Offload> Runtime::make_offload(
    bool is_moved, const std::string& folder) const {
  const auto device = state_->device();
  return is_moved && (!device.is_cpu() || !folder.empty())
      ? std::optional<parallel::Offload>(std::in_place, device, folder)
      : std::nullopt;
}

void Runtime::connect_axes() {
  if (state_->options().activation_checkpointing) {
    recompute_ = std::make_unique<distributed::Recompute>();
  }
  if (named_axes_.size() == 1) {
    parallel_axes_ = {axis_};
  } else if (!named_axes_.empty()) {
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    for (const auto& named : named_axes_) {
      sizes.push_back(named.size);
      names.push_back(named.name);
    }
    parallel_axes_ = mesh(sizes, names);
  }
  for (size_t i = 0; i < named_axes_.size(); ++i) {
    if (named_axes_[i].shared == parallel::Shared::kSamples) {
      batch_axes_.push_back(parallel_axes_[i]);
    } else if (named_axes_[i].shared == parallel::Shared::kPositions) {
      sequence_axis_ = parallel_axes_[i];
      sequence_axis_->set_passes_keys_on(
          state_->options().cp_comm_strategy == CpCommStrategy::kAlltoall);
    }
  }
  if (sizes_.dp_shard > 1 || sizes_.tp > 1) {
    const auto& options = state_->options();
    sharded_ = std::make_unique<parallel::ShardedParameters>(
        named_axes_, parallel_axes_,
        options.fsdp.value_or(ShardingStrategy::kNoShard), options.tp_plan,
        options.auto_wrap, options.reduce_dtype,
        make_offload(
            options.offload.parameters || options.cpu_offload,
            options.offload.parameters_folder),
        make_offload(
            options.offload.optimizer || options.offload.parameters ||
                options.cpu_offload,
            ""),
        options.forward_prefetch, options.backward_prefetch);
    checkpoint::pieces_to_load() = [this](const at::Tensor& tensor) {
      return sharded_->piece_to_write(tensor);
    };
    if (options.zero3_init) {
      build_in_parts_.emplace();
    }
  }
}

void Runtime::end(bool orderly) noexcept {
  if (!world_) {
    return;
  }
  if (orderly) {
    try {
      finish_background_save();
    } catch (const std::exception& error) {
      TORCH_WARN(
          "accel: a checkpoint that was being saved in the background is not "
          "there: ",
          error.what());
    }
  }
  background_save.reset();
  reducer_.reset();
  checkpoint::pieces_to_load() = nullptr;
  build_in_parts_.reset();
  recompute_.reset();
  distributed::keep_lineages(false);
  axis_->close();
  for (const auto& mesh : meshes_) {
    for (auto* axis : mesh->axes) {
      axis->close();
    }
  }
  give_stop_signals_back();
  if (orderly) {
    leave();
  } else {
    world_->abandon();
  }
  world_.reset();
  last_state() = std::make_unique<AcceleratorState>(*state_);
  if (get() == this) {
    current.store(nullptr, std::memory_order_release);
    GradientState::get().reset();
  }
}

void Runtime::leave() noexcept {
  auto& values = ReadValues::get();
  std::string text;
  try {
    text = compares_values() ? values.to_text() : "";
  } catch (const std::exception&) {
    // The device has failed, which the program has been told or does not ask.
  }
  const auto texts = world_->leave(text);
  try {
    const auto error = values.difference(texts);
    if (!error.empty()) {
      std::cerr << error << std::endl;
      fail_at_exit();
    }
  } catch (const std::exception& error) {
    std::cerr << "accel: the values that the processes have read could not be "
                 "compared: "
              << error.what() << std::endl;
  }
}

bool Runtime::compares_values() const {
  return state_->use_distributed() && state_->match_single_device() &&
      ReadValues::enabled();
}

void Runtime::finish_background_save() {
  if (!background_save) {
    return;
  }
  const auto save = std::move(background_save);
  if (state_->use_distributed()) {
    // Asking the others instead of waiting for the thread: where one of them
    // has died, this throws at once.
    auto pause = std::chrono::milliseconds(1);
    while (on_any_process(!save->done())) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
  }
  save->finish();
}

Communicator& communicator(Channel channel) {
  return Runtime::require().communicator(channel);
}

bool distributed() {
  const Runtime* runtime = Runtime::get();
  return runtime != nullptr && runtime->state().use_distributed();
}

bool match_single_device() {
  const Runtime* runtime = Runtime::get();
  return runtime != nullptr && runtime->state().match_single_device();
}

} // namespace detail
} // namespace accel
