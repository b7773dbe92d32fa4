#pragma once

#include <accel/export.h>

#include <ATen/core/Formatting.h>

#include <cstdint>
#include <ostream>

// `std::cout << tensor`. LibTorch's at::print reads the tensor's memory, and a
// distributed tensor has none that could be read as a whole. LibTorch's
// operator<< is inline and calls at::print, so that a definition in the
// program comes before LibTorch's, whatever the order of the libraries.

namespace accel::detail {

/// What `at::print` prints of the whole tensor. Where it is distributed all
/// processes must call it, also those that print to nowhere
/// (`accelerator.cout()`).
ACCEL_API std::ostream& print(
    std::ostream& stream,
    const at::Tensor& tensor,
    int64_t line_size);

} // namespace accel::detail

namespace at {

inline std::ostream& print(
    std::ostream& stream,
    const Tensor& tensor,
    int64_t linesize) {
  return accel::detail::print(stream, tensor, linesize);
}

} // namespace at
