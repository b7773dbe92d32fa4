#pragma once

#include <accel/operations.h>

#include <torch/types.h>

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <vector>

// What can be asked of, and done with, all tensors in a value: a tensor, or
// whatever `TensorsOf` knows. Counterparts of functions in accelerate.utils.
namespace accel {

namespace detail {
template <typename T>
std::vector<torch::Tensor> tensors_in(const T& value) {
  std::vector<torch::Tensor> tensors;
  map_tensors(value, [&](const torch::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}
} // namespace detail

/// Rows (dimension 0) of the first tensor. Throws `c10::Error` where there is no
/// tensor, or the first one is a scalar.
template <typename T>
int64_t find_batch_size(const T& value) {
  const auto tensors = detail::tensors_in(value);
  TORCH_CHECK(
      !tensors.empty() && tensors[0].defined() && tensors[0].dim() > 0,
      "accel: find_batch_size was given a value ",
      tensors.empty() ? "without tensors." : "whose first tensor has no rows.");
  return tensors[0].size(0);
}

/// Device of the first tensor; empty where there is none.
template <typename T>
std::optional<torch::Device> find_device(const T& value) {
  for (const auto& tensor : detail::tensors_in(value)) {
    if (tensor.defined()) {
      return tensor.device();
    }
  }
  return std::nullopt;
}

/// The rows `begin` to `end` (not included; counted as `Tensor::slice` does) of
/// each tensor; views.
template <typename T>
T slice_tensors(const T& value, int64_t begin, int64_t end) {
  return map_tensors(value, [&](const torch::Tensor& tensor) {
    return tensor.slice(0, begin, end);
  });
}

/// The tensors of all values, put together along `dim`, in the structure of the
/// first. Throws `c10::Error` where there are no values, or they have different
/// numbers of tensors.
template <typename T>
T concatenate(const std::vector<T>& values, int64_t dim = 0) {
  TORCH_CHECK(!values.empty(), "accel: concatenate was given no values.");
  std::vector<std::vector<torch::Tensor>> tensors;
  for (const auto& value : values) {
    tensors.push_back(detail::tensors_in(value));
    TORCH_CHECK(
        tensors.back().size() == tensors.front().size(),
        "accel: concatenate was given values with ",
        tensors.front().size(),
        " and with ",
        tensors.back().size(),
        " tensors.");
  }
  size_t next = 0;
  return map_tensors(values.front(), [&](const torch::Tensor& /*first*/) {
    std::vector<torch::Tensor> parts;
    for (const auto& all : tensors) {
      parts.push_back(all[next]);
    }
    ++next;
    return torch::cat(parts, dim);
  });
}

/// Tensors in float16 and bfloat16 as float32; the others as they are.
template <typename T>
T convert_to_fp32(const T& value) {
  return map_tensors(value, [](const torch::Tensor& tensor) {
    const bool reduced = tensor.defined() &&
        (tensor.scalar_type() == torch::kHalf ||
         tensor.scalar_type() == torch::kBFloat16);
    return reduced ? tensor.to(torch::kFloat) : tensor;
  });
}

} // namespace accel
