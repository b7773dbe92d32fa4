#pragma once

#include <ATen/core/Tensor.h>

namespace accel::checkpoint {

/// Whether `SafetensorsFile::read_into` reads straight into this tensor's
/// memory, without any of LibTorch's operators, so that every thread may do it.
bool can_be_read_into(const at::Tensor& tensor);

} // namespace accel::checkpoint
