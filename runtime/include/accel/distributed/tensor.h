#pragma once

#include <accel/distributed/device_mesh.h>
#include <accel/distributed/placement.h>
#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

/// Distributed tensors: DTensor for C++. A distributed tensor is a
/// `torch::Tensor` that has the sizes of the whole tensor and holds this
/// process's part of it. Every operator works on it, forward and backward, and
/// gives what it would give on the whole tensor; where it is cut decides how
/// fast that is and nothing else. `item()`, `equal` and whatever else returns a
/// value instead of a tensor gives the whole tensor's, on all processes.
///
/// Its memory cannot be read (`data_ptr`, `accessor`): take `full_tensor`
/// first. *Collective* below means: every process of the mesh must call it, in
/// the same order; so are operators, whose order must be the same everywhere.
namespace accel::distributed {

/// Whether the tensor is distributed. Not collective.
ACCEL_API bool is_distributed(const at::Tensor& tensor);

/// A tensor that all processes have in full, placed as `placements` says: one
/// for each axis of the mesh. The same values, and the same gradients. A
/// dimension with fewer entries than an axis has processes stays replicated.
/// Nothing is communicated: that all processes have the same tensor is taken for
/// granted (PyTorch's broadcasts rank 0's; use `accelerator.broadcast` where
/// they may differ). A tensor that is distributed already is redistributed, which
/// is collective; along axes of its mesh that `mesh`, a sub-mesh, does not have it
/// stays as it is. Throws `c10::Error` where a placement does not fit the tensor,
/// and where the tensor is on another mesh.
ACCEL_API at::Tensor distribute_tensor(
    const at::Tensor& tensor,
    const DeviceMesh& mesh,
    const std::vector<Placement>& placements);

/// A tensor that all processes have in full, cut where `like` is cut: for buffers
/// that are made with a batch's sizes and are written step by step, such as
/// `torch::zeros({x.size(0), steps})`. Along each axis that cuts a dimension of
/// `like`, dimension `dim` is cut in the same places; without `dim` the dimension of
/// the same number. Where that has other rows than `like` has, or `like` is not cut,
/// nothing is. The tensor itself where `like` is plain, so that a function can say
/// this of whatever it is given, and where the tensor lies in parts already. Nothing
/// is communicated, and only those processes need call it that go on with the tensor.
/// Throws `c10::Error` where `dim` is no dimension of the tensor; -1 is the last one.
ACCEL_API at::Tensor distribute_like(
    const at::Tensor& tensor,
    const at::Tensor& like,
    std::optional<int64_t> dim = std::nullopt);

/// The same tensor in other placements: one for each axis of `mesh`, whatever the
/// tensor's were, a plain one included. Differentiable. Collective.
ACCEL_API at::Tensor redistribute(
    const at::Tensor& tensor,
    const DeviceMesh& mesh,
    const std::vector<Placement>& placements);

/// The same along the axes that the tensor is distributed along (`mesh(tensor)`):
/// those along which it is replicated are not among them.
ACCEL_API at::Tensor redistribute(
    const at::Tensor& tensor,
    const std::vector<Placement>& placements);

/// The whole tensor, plain, on every process; the tensor itself where it is not
/// distributed. Differentiable. Collective.
ACCEL_API at::Tensor full_tensor(const at::Tensor& tensor);

/// The same, with the memory that `tensor` and all that share its memory (views,
/// detached tensors) have from there on: they are replicated, and what is written into
/// one, also by a pointer, is in the others. Differentiable. Collective.
ACCEL_API at::Tensor full_tensor_(const at::Tensor& tensor);

/// This process's part as a plain tensor, of its own sizes; the tensor itself
/// where it is not distributed. It may share memory with the distributed one.
/// Who writes into it does so on all processes at the same place of the program (the
/// values may differ): parameters that were gathered before are then gathered anew.
/// Differentiable: the gradient of a part is the part of the gradient. Not
/// collective.
ACCEL_API at::Tensor to_local(const at::Tensor& tensor);

/// A distributed tensor out of the processes' parts, on a mesh of one axis.
/// With `Shard(dim)` the parts follow each other in rank order; sizes may
/// differ in that dimension. With `Replicate` all must have the same values,
/// which is not checked. Differentiable. Collective for shards: sizes are
/// exchanged.
ACCEL_API at::Tensor from_local(
    const at::Tensor& local,
    const DeviceMesh& mesh,
    const Placement& placement);

/// One placement for each axis of `mesh(tensor)`. Throws where the tensor is
/// not distributed. Not collective.
ACCEL_API std::vector<Placement> placements(const at::Tensor& tensor);

/// The axes along which the tensor is distributed. Throws where it is not. Not
/// collective.
ACCEL_API DeviceMesh mesh(const at::Tensor& tensor);

} // namespace accel::distributed

namespace accel {
using distributed::distribute_like;
} // namespace accel
