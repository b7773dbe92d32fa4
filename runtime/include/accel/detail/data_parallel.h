#pragma once

#include <accel/export.h>
#include <accel/operations.h>

#include <torch/types.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::detail {

class Runtime;

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

/// A call with the rows split, from the inputs to the outputs. While it lives
/// the parts of the batch are what is being worked on. Collective at its
/// beginning (the check that all have the same batch) and in `gathered`.
class ACCEL_API DataParallelCall {
 public:
  /// `rows`: the whole inputs. Throws where there are none, or where they do not
  /// have equally many rows, at least one.
  DataParallelCall(Runtime& runtime, const std::vector<torch::Tensor>& rows);
  ~DataParallelCall();
  DataParallelCall(const DataParallelCall&) = delete;
  DataParallelCall& operator=(const DataParallelCall&) = delete;

  /// This process's rows of the inputs, in their order; two of a ghost's.
  const std::vector<torch::Tensor>& parts() const {
    return parts_;
  }

  /// The rows of all processes of what the model returned for the parts.
  std::vector<torch::Tensor> gathered(
      const std::vector<torch::Tensor>& outputs) const;

 private:
  void bring_changes_back() const;

  struct Step;
  std::unique_ptr<Step> step_;
  std::vector<torch::Tensor> parts_;
};

template <typename T, typename F>
T replace_tensors(const T& value, F&& f) {
  if constexpr (has_tensors<T>::value) {
    return map_tensors(value, [&](const torch::Tensor& tensor) {
      return tensor.defined() ? f(tensor) : tensor;
    });
  } else {
    return value;
  }
}

template <typename Model, typename... Inputs>
ForwardOf<Model, Inputs...> call_on_parts(
    Runtime& runtime,
    Model& model,
    const Inputs&... inputs) {
  using Output = ForwardOf<Model, Inputs...>;
  static_assert(
      has_tensors<Output>::value,
      "accel: data_parallel returns tensors, and vectors, tuples and maps of "
      "tensors; specialise accel::TensorsOf for a struct of yours.");
  std::vector<torch::Tensor> rows;
  const auto remember = [&](const torch::Tensor& tensor) {
    rows.push_back(tensor);
    return tensor;
  };
  (replace_tensors(inputs, remember), ...);
  const DataParallelCall call(runtime, rows);
  size_t next = 0;
  const auto part = [&](const torch::Tensor&) { return call.parts()[next++]; };
  // Braces evaluate from left to right.
  const std::tuple<std::decay_t<Inputs>...> parts{
      replace_tensors<std::decay_t<Inputs>>(inputs, part)...};
  const Output output = std::apply(
      [&](const auto&... arguments) { return call_model(model, arguments...); },
      parts);
  rows.clear();
  replace_tensors(output, remember);
  rows = call.gathered(rows);
  next = 0;
  return replace_tensors(
      output, [&](const torch::Tensor&) { return rows[next++]; });
}

} // namespace accel::detail
