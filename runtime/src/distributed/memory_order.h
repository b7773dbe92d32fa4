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

/// Strides of a tensor in the order of its dimensions.
Sizes usual_strides(c10::IntArrayRef sizes);

/// Strides of a tensor of four or five dimensions that lies channels-last.
Sizes channels_last(c10::IntArrayRef sizes);

/// The strides of the whole tensor of a root.
Sizes strides_of(const Part& root);

/// The dimensions, the outermost in memory first. A dimension of one entry lies
/// where its stride says: LibTorch asks for it where it looks for channels-last.
Sizes order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// The same where the stride of `cut` says nothing, because some process has a
/// single row: it goes in front of the dimensions behind it.
Sizes order_beside(
    int64_t cut,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides);

/// `like` of a tensor without gaps, else those of a copy of it.
Sizes strides_without_gaps(c10::IntArrayRef sizes, c10::IntArrayRef like);

/// The strides of a part of a dense tensor: of the same order, those of dimensions
/// of one entry included. Sizes differ in one dimension at most.
Sizes strides_in_part(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    c10::IntArrayRef part);

/// `local` with these strides of a dense tensor: itself where it has them, another
/// view of it where only dimensions of one entry differ, else a copy. A tensor that
/// is distributed along a further axis must be new: it is not told of that view.
at::Tensor laid_out(const at::Tensor& local, c10::IntArrayRef strides);

/// The strides of what LibTorch's TensorIterator makes of operands with these
/// strides, each with all dimensions of the result and 0 where the operand is
/// repeated along one.
Sizes strides_of_result(
    const std::vector<Sizes>& operands,
    c10::IntArrayRef sizes);

/// The same of operands that are broadcast to `sizes`, with what TensorIterator does
/// before it looks at strides: operands that lie alike give a result that does.
Sizes strides_of_pointwise(
    const std::vector<at::Tensor>& operands,
    c10::IntArrayRef sizes);

} // namespace accel::distributed
