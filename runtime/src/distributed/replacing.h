#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

// In-place operators whose result cannot lie where `self` lies: rows that each process
// adds to a tensor that all have. A tensor that nobody else has may become the result
// instead of being written to.

namespace accel::distributed {

/// Whether `self` may become the sum with `other`, in another place, instead of being
/// written to. One of both is distributed.
///
/// Where autograd's engine adds up, in place, the gradients of a tensor that several
/// operators have read, nobody else has seen the first one: a weight penalty's
/// gradient, which all processes have, may become a part of the sum that it is
/// added to, which is so brought together once, at the end. Not in nodes of the
/// program's own, which have no name of that form: what they write to, they may also
/// know by its memory.
///
/// In a forward pass what the program itself adds up, `auto loss = torch::zeros({});
/// loss += …`, becomes part of the graph, and is no memory that it looks at.
bool may_become_sum(const at::Tensor& self, const at::Tensor& other);

/// Registers index_put_, index_add_ and scatter_add_: `torch::zeros(…).index_add_(…)` of a
/// forward pass, and the tensors of zeros that the backwards of index, index_select
/// and gather add to.
void install_replacing(torch::Library& library);

} // namespace accel::distributed
