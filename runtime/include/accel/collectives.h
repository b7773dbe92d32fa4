#pragma once

#include <accel/detail/objects.h>
#include <accel/export.h>
#include <accel/operations.h>

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

/// Values of all processes: members of `Accelerator`. All are collective: every
/// process must call them, in the same order. Inputs stay as they are; with
/// several processes results require no gradients. With one process each
/// returns what it is given.
class ACCEL_API Collectives {
 public:
  /// The rows of all processes, in rank order: tensors of equal shape,
  /// concatenated on dimension 0 (a scalar becomes a vector with an element for
  /// each process). Throws `c10::Error` where shapes or types differ, and for a
  /// distributed tensor, which is not one of each process (`gather_for_metrics`).
  torch::Tensor gather(const torch::Tensor& tensor);

  /// The rows that one device would have: what metrics are computed from. In
  /// `match_single_device`, and of distributed tensors, `Accelerator::full`: a
  /// tensor that all processes have is itself, so that a call too many changes
  /// nothing, not even a gradient; an undefined one is undefined. Otherwise
  /// `gather`, and at the end of a loader without its repeated samples. Of
  /// several tensors it returns a `std::tuple`. Throws as `gather` does. A loop over
  /// another loader that was left by `break` in its last batch counts as if it went on,
  /// as in Accelerate: call `accelerator.leave(*loader)` behind it.
  ///
  ///     std::tie(output, target) = accelerator.gather_for_metrics(output, target);
  torch::Tensor gather_for_metrics(const torch::Tensor& tensor);
  template <typename... Tensors>
  auto gather_for_metrics(
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest);

  /// "sum", "mean", "max" or "min" over the processes, elementwise; same shape
  /// and dtype. A distributed tensor has the value of all processes already: the
  /// mean, maximum and minimum are `Accelerator::full`, "sum" throws. Throws for
  /// other names, for means of integers, and where shapes or types differ.
  torch::Tensor reduce(
      const torch::Tensor& tensor,
      const std::string& reduction = "sum");

  /// Process `from_process`'s tensor, in place; returns it. Throws where shapes
  /// or types differ, for sparse tensors, as all of these do, and for distributed
  /// ones, whose value all processes have.
  torch::Tensor broadcast(torch::Tensor tensor, int64_t from_process = 0);

  /// The tensor with dimension `dim` filled up with `pad_index`, behind its
  /// entries or (`pad_first`) before them, to the greatest size that any
  /// process has.
  torch::Tensor pad_across_processes(
      const torch::Tensor& tensor,
      int64_t dim = 0,
      double pad_index = 0,
      bool pad_first = false);

  /// `gather`, `gather_for_metrics`, `reduce`, `broadcast` and
  /// `pad_across_processes` for each tensor in a vector, map, tuple, `Example` or
  /// struct of your own (`TensorsOf`, accel/operations.h). Processes must give
  /// values with the same tensors.
  template <typename T, if_holds_tensors<T> = 0>
  T gather(const T& value);
  template <typename T, if_holds_tensors<T> = 0>
  T gather_for_metrics(const T& value);
  template <typename T, if_holds_tensors<T> = 0>
  T reduce(const T& value, const std::string& reduction = "sum");
  template <typename T, if_holds_tensors<T> = 0>
  T broadcast(const T& value, int64_t from_process = 0);
  template <typename T, if_holds_tensors<T> = 0>
  T pad_across_processes(
      const T& value,
      int64_t dim = 0,
      double pad_index = 0,
      bool pad_first = false);

  /// Process `from_process`'s value on all processes: for decisions by a clock,
  /// seeds, and whatever else differs between processes and must not. Numbers,
  /// enumerations, structs of plain numbers, vectors of those (no bool), of any
  /// length on each process, and `std::string`.
  ///
  ///     torch::manual_seed(accelerator.broadcast_object(time(nullptr)));
  ///     if (accelerator.broadcast_object(elapsed() > limit)) break;
  template <typename T>
  T broadcast_object(T value, int64_t from_process = 0) const {
    return detail::broadcast_object(std::move(value), from_process);
  }

  /// The elements of all processes' vectors, in rank order, any number from
  /// each: numbers (no bool), enumerations, structs of plain numbers and
  /// `std::string`s. Throws `c10::Error` on all processes, as `broadcast_object`
  /// does, where they are of different types.
  template <typename T>
  std::vector<T> gather_object(const std::vector<T>& objects) const {
    return detail::gather_object(objects);
  }

 private:
  /// `gather_for_metrics` of tensors of the same batch: what one of them says
  /// about the rows holds for all.
  std::vector<torch::Tensor> gather_rows(
      const std::vector<torch::Tensor>& tensors);
};

template <typename... Tensors>
auto Collectives::gather_for_metrics(
    const torch::Tensor& first,
    const torch::Tensor& second,
    const Tensors&... rest) {
  return as_tuple<2 + sizeof...(Tensors)>(
      gather_rows({first, second, rest...}));
}

template <typename T, if_holds_tensors<T>>
T Collectives::gather(const T& value) {
  return map_tensors(
      value, [this](const torch::Tensor& t) { return gather(t); });
}

template <typename T, if_holds_tensors<T>>
T Collectives::gather_for_metrics(const T& value) {
  std::vector<torch::Tensor> tensors;
  map_tensors(value, [&](const torch::Tensor& t) {
    tensors.push_back(t);
    return t;
  });
  if (tensors.empty()) {
    return value;
  }
  tensors = gather_rows(tensors);
  size_t next = 0;
  return map_tensors(
      value, [&](const torch::Tensor&) { return tensors[next++]; });
}

template <typename T, if_holds_tensors<T>>
T Collectives::reduce(const T& value, const std::string& reduction) {
  return map_tensors(
      value, [&](const torch::Tensor& t) { return reduce(t, reduction); });
}

template <typename T, if_holds_tensors<T>>
T Collectives::broadcast(const T& value, int64_t from_process) {
  return map_tensors(value, [&](const torch::Tensor& t) {
    return broadcast(t, from_process);
  });
}

template <typename T, if_holds_tensors<T>>
T Collectives::pad_across_processes(
    const T& value,
    int64_t dim,
    double pad_index,
    bool pad_first) {
  return map_tensors(value, [&](const torch::Tensor& t) {
    return pad_across_processes(t, dim, pad_index, pad_first);
  });
}

} // namespace accel::detail
