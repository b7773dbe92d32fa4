// What random placements do where a program reads the memory of a tensor.
#pragma once

#include <functional>

namespace at {
class Tensor;
class TensorBase;
} // namespace at

namespace accel::distributed::test {

/// Calls `use` with the whole tensor, where nothing is placed.
void with_whole(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& use);

/// The tensor whose memory a program gets in place of `base`'s: a distributed one
/// becomes replicated, and its memory is the whole tensor's. Threads that the
/// program starts cannot wait for the other processes: they get `base`, whose
/// memory is the library's error.
at::TensorBase replicated(const at::TensorBase& base);

} // namespace accel::distributed::test
