#pragma once

#include "distributed/part.h"

#include <vector>

// In which order the dimensions of a tensor lie in memory.

namespace accel::distributed {

/// Strides of a dense tensor whose memory is ordered as `order` says, the
/// innermost dimension last.
void dense_strides(
    c10::IntArrayRef sizes,
    c10::IntArrayRef order,
    Sizes& strides);

/// The dimensions, the outermost in memory first. Strides do not tell where a
/// dimension of one row lies: it goes in front of those behind it.
Sizes order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Strides of a tensor that is repeated, which say nothing about an order.
bool is_repeated(c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// The strides of a copy of a tensor that is repeated or has gaps, as LibTorch
/// makes them: dense, in the order that its strides say.
Sizes strides_of_copy(c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// A copy whose memory is ordered as `order` says. Through views, which tensors
/// that are distributed along further axes have, too.
at::Tensor copy_in_order(const at::Tensor& local, c10::IntArrayRef order);

/// Whether a tensor has no gaps, and its memory is ordered as `order` says.
bool is_dense_as(const at::Tensor& local, c10::IntArrayRef order);

/// The strides of what LibTorch's TensorIterator makes of operands with these
/// strides, each with all dimensions of the result and 0 where the operand is
/// repeated along one.
Sizes strides_of_result(
    const std::vector<Sizes>& operands,
    c10::IntArrayRef sizes);

} // namespace accel::distributed
