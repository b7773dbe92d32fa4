#pragma once

#include <type_traits>
#include <utility>

namespace accel::detail {

// ---- What `Accelerator::data_parallel` is given to call: a module or a pointer
// to one, with `forward`, or something with an operator().

template <typename Enable, typename Model, typename... Inputs>
struct PointsToModel : std::false_type {};
template <typename Model, typename... Inputs>
struct PointsToModel<
    std::void_t<decltype(std::declval<Model&>()->forward(
        std::declval<const Inputs&>()...))>,
    Model,
    Inputs...> : std::true_type {};

template <typename Enable, typename Model, typename... Inputs>
struct IsModel : std::false_type {};
template <typename Model, typename... Inputs>
struct IsModel<
    std::void_t<decltype(std::declval<Model&>().forward(
        std::declval<const Inputs&>()...))>,
    Model,
    Inputs...> : std::true_type {};

template <typename Model, typename... Inputs>
auto call_model(Model& model, const Inputs&... inputs) {
  if constexpr (PointsToModel<void, Model, Inputs...>::value) {
    return model->forward(inputs...);
  } else if constexpr (IsModel<void, Model, Inputs...>::value) {
    return model.forward(inputs...);
  } else {
    return model(inputs...);
  }
}

template <typename Model, typename... Inputs>
using ForwardOf = decltype(call_model(
    std::declval<std::remove_reference_t<Model>&>(),
    std::declval<const Inputs&>()...));

} // namespace accel::detail
