#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace accel::detail {

/// The strided tensors that one of another layout is made of; empty for a strided one.
std::vector<at::Tensor> components(const at::Tensor& tensor);

/// Of all that is in the tensor: models may differ in one row of a large table.
/// Nothing for tensors that are not read so.
std::optional<uint64_t> checksum_of(const at::Tensor& tensor);

} // namespace accel::detail
