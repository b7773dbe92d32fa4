#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace accel::detail {

template <typename T>
struct is_owner : std::false_type {};
template <typename T>
struct is_owner<std::shared_ptr<T>> : std::true_type {};
template <typename T, typename D>
struct is_owner<std::unique_ptr<T, D>> : std::true_type {};
template <typename T>
struct is_owner<T*> : std::true_type {};

template <typename T>
inline constexpr bool always_false = false;

/// Whether it is a module or an optimizer, holds one or points to one.
template <typename T>
constexpr bool is_model_or_optimizer() {
  using Type = std::remove_cv_t<T>;
  if constexpr (is_owner<Type>::value) {
    return is_model_or_optimizer<
        std::remove_reference_t<decltype(*std::declval<Type>())>>();
  } else {
    return std::is_base_of_v<torch::nn::Module, Type> ||
        std::is_base_of_v<torch::optim::Optimizer, Type> ||
        torch::detail::is_module_holder<Type>::value ||
        std::is_same_v<Type, torch::nn::AnyModule>;
  }
}

/// The module or optimizer that `object` is, holds or points to; calls
/// `on_module`, `on_optimizer` or `on_scheduler`. Empty holders and pointers
/// give a null pointer.
template <
    typename T,
    typename OnModule,
    typename OnOptimizer,
    typename OnScheduler>
void visit_preparable(
    T& object,
    const OnModule& on_module,
    const OnOptimizer& on_optimizer,
    const OnScheduler& on_scheduler) {
  using Type = std::remove_cv_t<T>;
  if constexpr (std::is_base_of_v<torch::nn::Module, Type>) {
    on_module(&object);
  } else if constexpr (std::is_base_of_v<torch::optim::Optimizer, Type>) {
    on_optimizer(&object);
  } else if constexpr (std::is_base_of_v<torch::optim::LRScheduler, Type>) {
    on_scheduler(&object);
  } else if constexpr (torch::detail::is_module_holder<Type>::value) {
    on_module(object.is_empty() ? nullptr : object.ptr().get());
  } else if constexpr (std::is_same_v<Type, torch::nn::AnyModule>) {
    on_module(object.is_empty() ? nullptr : object.ptr().get());
  } else if constexpr (is_owner<Type>::value) {
    using Pointee = std::remove_reference_t<decltype(*object)>;
    if (object != nullptr) {
      visit_preparable(*object, on_module, on_optimizer, on_scheduler);
    } else if constexpr (std::is_base_of_v<torch::nn::Module, Pointee>) {
      on_module(nullptr);
    } else {
      on_optimizer(nullptr);
    }
  } else {
    static_assert(
        always_false<T>,
        "accelerator.prepare takes models (a torch::nn::Module, a module "
        "holder such as torch::nn::Sequential, an AnyModule, a pointer to "
        "one), optimizers and schedulers (or pointers to them). Data loaders "
        "are not prepared but made: accel::data::make_data_loader.");
  }
}

} // namespace accel::detail
