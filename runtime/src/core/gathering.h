#pragma once

#include <accel/detail/communicator.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::detail {

/// Compares dtype, device type and shape (from dimension `first_dim` on) with
/// the other processes', so that a wrong call of `operation` is an error on all
/// of them and not a wrong number. One number can travel along; returns those of
/// all processes. Collective, one message.
std::vector<int64_t> check_alike(
    const char* operation,
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors,
    int64_t first_dim,
    int64_t number = 0);

/// The rows of all processes, in order, where process `r` has `multiple` times
/// the rows of its part of `global` (`BatchShare`); rows of ghosts are left out.
/// Without a gradient. Collective, one message.
at::Tensor gather_parts(
    Communicator& communicator,
    const at::Tensor& tensor,
    int64_t global,
    int64_t multiple);

} // namespace accel::detail
