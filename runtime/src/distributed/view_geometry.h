#pragma once

#include "distributed/part.h"

namespace accel::distributed {

/// Gives a view the strides and the offset that the same view of a plain tensor
/// with `base`'s sizes and strides has, so that what asks for them (`reshape`,
/// `is_contiguous`) decides as it would on one device; its local tensor gets those of
/// a part of it. `tensor` has its sizes already.
void set_view_geometry(
    const at::Tensor& tensor,
    const at::Tensor& base,
    const ViewOf& view);

} // namespace accel::distributed
