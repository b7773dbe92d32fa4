#pragma once

#include <accel/detail/communicator.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::detail {

/// Throws `c10::Error` where `tensor`, which `operation` was given, is sparse: what is
/// sent is the elements as they lie in memory.
void check_dense(const char* operation, const at::Tensor& tensor);

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

} // namespace accel::detail
