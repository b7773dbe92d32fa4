#pragma once

// The bodies of what accel/accelerator.h declares inline; included by it.

#include <accel/accelerator.h>
#include <accel/data/cursor.h>
#include <accel/detail/alone.h>
#include <accel/detail/preparable.h>
#include <accel/operations.h>
#include <accel/utils/split.h>

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace accel {

namespace detail {

/// `region`: what is named where something in it needs all processes; null
/// where all run it.
template <typename F, typename... Args>
auto call_if(bool condition, const char* region, F&& f, Args&&... args) {
  using Result = std::invoke_result_t<F, Args...>;
  if constexpr (std::is_void_v<Result>) {
    if (condition) {
      const AloneGuard alone(region);
      std::forward<F>(f)(std::forward<Args>(args)...);
    }
  } else {
    std::optional<std::decay_t<Result>> result;
    if (condition) {
      const AloneGuard alone(region);
      result.emplace(std::forward<F>(f)(std::forward<Args>(args)...));
    }
    return result;
  }
}

/// The region, unless it is run by all processes.
inline const char* of_one_each(const AcceleratorState& state, const char* region) {
  return state.local_num_processes() > 1 ? region : nullptr;
}

template <typename Model>
const torch::nn::Module& module_of(const Model& model) {
  const torch::nn::Module* found = nullptr;
  visit_preparable(
      model,
      [&](const torch::nn::Module* module) { found = module; },
      [](const torch::optim::Optimizer*) {},
      [](const torch::optim::LRScheduler*) {});
  TORCH_CHECK(
      found != nullptr,
      "accel: a model was expected, but got an empty module holder, a null "
      "pointer or something that is no model.");
  return *found;
}

} // namespace detail

// ==== This process among the others.

inline torch::Device Accelerator::device() const {
  return state().device();
}
inline DistributedType Accelerator::distributed_type() const {
  return state().distributed_type();
}
inline int64_t Accelerator::num_processes() const {
  return state().num_processes();
}
inline int64_t Accelerator::process_index() const {
  return state().process_index();
}
inline int64_t Accelerator::local_process_index() const {
  return state().local_process_index();
}
inline bool Accelerator::is_main_process() const {
  return state().is_main_process();
}
inline bool Accelerator::is_local_main_process() const {
  return state().is_local_main_process();
}
inline bool Accelerator::is_last_process() const {
  return state().is_last_process();
}
inline bool Accelerator::use_distributed() const {
  return state().use_distributed();
}
inline MixedPrecision Accelerator::mixed_precision() const {
  return state().mixed_precision();
}

template <typename F, typename... Args>
auto Accelerator::on_main_process(F&& f, Args&&... args) const {
  return detail::call_if(
      is_main_process(),
      "on_main_process, which only process 0 runs",
      std::forward<F>(f),
      std::forward<Args>(args)...);
}
template <typename F, typename... Args>
auto Accelerator::on_local_main_process(F&& f, Args&&... args) const {
  return detail::call_if(
      is_local_main_process(),
      detail::of_one_each(
          state(),
          "on_local_main_process, which one process of each machine runs"),
      std::forward<F>(f),
      std::forward<Args>(args)...);
}
template <typename F, typename... Args>
auto Accelerator::on_last_process(F&& f, Args&&... args) const {
  return detail::call_if(
      is_last_process(),
      "on_last_process, which only the last process runs",
      std::forward<F>(f),
      std::forward<Args>(args)...);
}
template <typename F, typename... Args>
auto Accelerator::on_process(int64_t index, F&& f, Args&&... args) const {
  return detail::call_if(
      process_index() == index,
      "on_process, which only one process runs",
      std::forward<F>(f),
      std::forward<Args>(args)...);
}
template <typename F, typename... Args>
auto Accelerator::on_local_process(int64_t index, F&& f, Args&&... args) const {
  return detail::call_if(
      local_process_index() == index,
      detail::of_one_each(
          state(),
          "on_local_process, which one process of each machine runs"),
      std::forward<F>(f),
      std::forward<Args>(args)...);
}

// ==== Models, optimizers, schedulers.

template <typename... Objects>
void Accelerator::prepare(Objects&&... objects) {
  begin_prepare();
  (detail::visit_preparable(
       objects,
       [this](torch::nn::Module* module) { prepare_model(module); },
       [](torch::optim::Optimizer*) {},
       [](torch::optim::LRScheduler*) {}),
   ...);
  (detail::visit_preparable(
       objects,
       [](torch::nn::Module*) {},
       [this](torch::optim::Optimizer* o) { prepare_optimizer(o); },
       [this](torch::optim::LRScheduler* s) { prepare_scheduler(s); }),
   ...);
}

// ==== The training step.

template <typename... Models>
AccumulateGuard Accelerator::accumulate(const Models&... /*models*/) {
  return begin_micro_step();
}

// ==== Batches that no loader makes.

template <typename T, if_holds_tensors<T>>
T Accelerator::distribute(const T& value) const {
  return map_tensors(
      value, [this](const torch::Tensor& tensor) { return distribute(tensor); });
}

template <typename... Tensors>
std::tuple<torch::Tensor, torch::Tensor, Tensors...> Accelerator::distribute(
    const torch::Tensor& first,
    const torch::Tensor& second,
    const Tensors&... more) const {
  // In braces: in this order, on all processes.
  return std::tuple<torch::Tensor, torch::Tensor, Tensors...>{
      distribute(first), distribute(second), distribute(more)...};
}

template <typename T, if_holds_tensors<T>>
T Accelerator::full(const T& value) const {
  return map_tensors(
      value, [this](const torch::Tensor& tensor) { return full(tensor); });
}

template <typename Inputs>
auto Accelerator::split_between_processes(
    const Inputs& inputs,
    bool apply_padding) const {
  return accel::split_between_processes(
      inputs, process_index(), num_processes(), apply_padding);
}

template <typename T>
T Accelerator::send_to_device(const T& value, std::optional<bool> non_blocking)
    const {
  const bool ahead = non_blocking.value_or(state().options().non_blocking);
  return map_tensors(value, [&](const torch::Tensor& t) {
    // Without pinned memory "non-blocking" blocks. LibTorch keeps the pinned
    // copy until the device has read it.
    const bool pin = ahead && !device().is_cpu() && t.defined() && t.is_cpu() &&
        t.layout() == torch::kStrided && !t.is_pinned();
    return (pin ? t.pin_memory() : t).to(device(), ahead);
  });
}

// ==== Checkpoints.

template <typename... Objects>
void Accelerator::register_for_checkpointing(Objects&... objects) {
  (add_for_checkpointing(checkpoint::custom_object(objects)), ...);
}

template <typename Model>
void Accelerator::save_model(
    const Model& model,
    const std::string& directory,
    const std::string& max_shard_size) {
  save_module(detail::module_of(model), directory, max_shard_size);
}

template <typename Model>
checkpoint::StateDict Accelerator::get_state_dict(const Model& model) const {
  return whole_state_dict(detail::module_of(model));
}

template <typename Model>
Model& Accelerator::unwrap_model(Model& model) const {
  return model;
}

template <typename Loader>
void Accelerator::skip_first_batches(Loader& loader, int64_t batches) const {
  detail::resumable(loader).skip_first_batches(batches);
}

template <typename Loader>
std::optional<int64_t> Accelerator::num_batches(Loader& loader) const {
  return detail::resumable(loader).batches();
}

template <typename Loader>
void Accelerator::leave(Loader& loader) const {
  detail::resumable(loader).leave();
}

// ==== Recording of the run.

template <typename Tracker>
Tracker* Accelerator::get_tracker(const std::string& name) {
  return trackers_->get_tracker<Tracker>(name);
}

} // namespace accel
