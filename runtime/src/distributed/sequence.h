#pragma once

#include "distributed/axis.h"

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>

namespace accel::distributed {

/// Sequence parallelism beside tensor parallelism: between the layers whose weights
/// are cut along an axis, activations lie in positions along it, `Shard(dim)`.
///
/// Without it what a layer leaves as a part of a sum becomes whole on all processes
/// where an operator cannot take such parts. With it each process sums the positions
/// that are its own, and norms, dropout and residuals are computed on these. One for
/// the program, as the Accelerator is; set while no operator runs.
class ACCEL_API SequenceParallel {
 public:
  static SequenceParallel& get();

  /// From now on along this axis, in this dimension of tensors of three dimensions
  /// or more.
  void begin(Axis& axis, int64_t dim);
  /// Where that axis had it.
  void end(const Axis& axis);

  bool is_on(const Axis& axis) const {
    return axis_ == &axis;
  }
  Axis* axis() const {
    return axis_;
  }
  /// Where a tensor of these sizes lies; nothing where positions are features, or are
  /// fewer than processes.
  std::optional<Placement> place(c10::IntArrayRef sizes) const;

  /// A parameter of a norm that takes what it is given in positions.
  void add(const at::Tensor& parameter);
  bool has(const at::Tensor& parameter) const {
    return axis_ != nullptr && parameter.defined() && knows(parameter);
  }

 private:
  bool knows(const at::Tensor& parameter) const;

  Axis* axis_ = nullptr;
  int64_t dim_ = 0;
  ska::flat_hash_map<
      const at::TensorImpl*,
      c10::weak_intrusive_ptr<at::TensorImpl>>
      parameters_;
};

/// The tensor in positions along the axis; itself where it lies so, or cannot. Keeps
/// autograd's graph. Collective where it lies otherwise along that axis.
at::Tensor in_positions(const at::Tensor& tensor);

/// Where the tensor, of however many axes, lies along the axis of sequence
/// parallelism; `Replicate` where there is none.
Placement place_along_sequence_axis(const at::Tensor& tensor);

/// A part of a sum that is about to be written: this process's positions of the sum
/// take its place. False, having done nothing, where others may see its memory, or it
/// is no such sum. Collective.
bool scatter_sum(Axis& axis, const at::Tensor& tensor, const char* operation);

} // namespace accel::distributed
