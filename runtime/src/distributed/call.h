#pragma once

#include "distributed/collectives.h"
#include "distributed/part.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <initializer_list>
#include <optional>
#include <string_view>

namespace accel::distributed {

class Call;

/// What a rule is: sees one call of an operator, of which at least one argument
/// is distributed along `call.axis()`, and does it in parts, or returns false,
/// having changed nothing, where it knows no better than the whole tensors.
///
/// What a rule decides by must be the same on all processes: places, the sizes
/// of whole tensors and the other arguments; never local sizes or values.
using Rule = bool (*)(Call& call);

/// What never changes about an operator, looked up once.
struct OperatorInfo {
  Rule rule = nullptr;
  /// Arguments and results of the schema.
  uint32_t arguments = 0;
  uint32_t results = 0;
  /// The arguments that may hold tensors.
  c10::SmallVector<uint32_t, 6> tensors;
  /// Of these, the ones that are written: as the schema says, or as is known
  /// (`native_batch_norm` does not say so of its running statistics).
  c10::SmallVector<uint32_t, 4> writes;
  /// The first result shares memory with argument 0, without a write.
  bool is_view = false;
  /// Argument 0 is written and returned.
  bool is_in_place = false;
  /// Has no rule and is made of other operators, which have. It comes to the
  /// fallback where autograd does not take it apart: in inference mode, and
  /// where rules call it with parts that are distributed along further axes.
  bool is_composite = false;
  /// Returns a number or a bool that was computed from values: the program may
  /// go on as it says, so that it must be the same on all processes.
  bool reads_value = false;
  /// Its rule takes tensors whose rows are cut in blocks (`CutPoints`).
  bool takes_blocks = false;
  /// Its rule takes sparse tensors that all processes have.
  bool takes_sparse = false;
  /// It draws random numbers, or may.
  bool draws = false;
  /// Its result has the values of its argument: `clone`, `detach`.
  bool copies = false;
  /// What it writes it writes anew, whatever was there.
  bool overwrites = false;
  /// A number for the operator that all machines have alike.
  uint64_t id = 0;
  /// The indices of the arguments of these names, -1 where there are none.
  int dim = -1;
  int keepdim = -1;
};

/// One call of an operator as a rule sees it. Arguments are named by their
/// index in the schema. Until `use…` has replaced an argument it is what the
/// program passed, with the whole tensor's sizes; behind it the local tensor.
class Call {
 public:
  Call(
      const c10::OperatorHandle& op,
      const OperatorInfo& info,
      torch::jit::Stack& stack,
      Axis& axis,
      c10::DispatchKeySet keys = {})
      : op_(op),
        info_(info),
        stack_(stack),
        base_(stack.size() - info.arguments),
        axis_(axis),
        keys_(below(keys)) {
    keep_unordered();
  }

  // ---- What is asked.

  Axis& axis() const {
    return axis_;
  }
  const c10::OperatorHandle& op() const {
    return op_;
  }
  const OperatorInfo& info() const {
    return info_;
  }
  /// "aten::add".
  const std::string& name() const {
    return op_.schema().name();
  }
  const std::string& overload() const {
    return op_.schema().overload_name();
  }
  size_t size() const {
    return info_.arguments;
  }
  /// The index of the argument of this name, -1 where the operator has none.
  /// A search: for operators that cost more than it.
  int index(std::string_view name) const;

  c10::IValue& at(size_t i) {
    return stack_[base_ + i];
  }
  const c10::IValue& at(size_t i) const {
    return stack_[base_ + i];
  }
  /// A tensor that is there (not none and not undefined).
  bool has(size_t i) const {
    const auto& value = at(i);
    return value.isTensor() && value.toTensor().defined();
  }
  const at::Tensor& tensor(size_t i) const {
    return at(i).toTensor();
  }
  int64_t integer(size_t i) const {
    return at(i).toInt();
  }
  bool boolean(size_t i) const {
    return at(i).toBool();
  }
  /// A list of integers; an empty one for none.
  Sizes integers(size_t i) const;
  /// A dimension of a tensor of `dims` dimensions, counted from the front.
  int64_t dim(size_t i, int64_t dims) const {
    const int64_t dim = integer(i);
    return dim < 0 ? dim + dims : dim;
  }
  /// A list of tensors.
  std::vector<at::Tensor> tensors(size_t i) const {
    return at(i).toTensorVector();
  }

  /// Whether an argument of the program is not in the order of its dimensions, so that
  /// parts may not show the strides of the plain result.
  bool has_unordered() const {
    return !unordered_.empty();
  }
  /// Argument `i` as the program passed it. Only where `has_unordered()`.
  const at::Tensor& passed(size_t i) const {
    return unordered_[i].toTensor();
  }

  // ---- Where tensors are, along this axis.

  /// Null for a tensor that all processes of the axis have in full.
  Part* part(const at::Tensor& tensor) const {
    if (!tensor.defined()) {
      return nullptr;
    }
    Part* part = part_of(tensor);
    return part != nullptr && part->axis == &axis_ ? part : nullptr;
  }
  Placement place(const at::Tensor& tensor) const {
    Part* p = part(tensor);
    return p != nullptr ? p->placement : Placement();
  }
  /// Replicate for an argument that is no tensor.
  Placement place(size_t i) const {
    return has(i) ? place(tensor(i)) : Placement();
  }
  /// The local tensor as it is.
  const at::Tensor& local(const at::Tensor& tensor) const {
    Part* p = part(tensor);
    return p != nullptr ? p->local : tensor;
  }
  const at::Tensor& local(size_t i) const {
    return local(tensor(i));
  }
  /// The local tensor of placement `to`. Collective where data must move.
  at::Tensor local_as(const at::Tensor& tensor, const Placement& to) const;
  /// How much a tensor counts where a rule prefers large ones: its elements. Along
  /// further axes of a mesh all count alike, for there a tensor is a part, whose
  /// size is not the same everywhere.
  int64_t weight(const at::Tensor& tensor) const {
    return axis_.index() == 0 ? tensor.numel() : 1;
  }
  /// Rows of this process of `n` rows cut as `placement` says.
  int64_t rows(int64_t n, const Placement& placement) const {
    return axis_.rows(n, placement.cut());
  }

  // ---- What a rule does.

  void set(size_t i, c10::IValue value) {
    at(i) = std::move(value);
  }
  /// Replaces argument i, where it is a tensor, by its local tensor of that
  /// placement. Collective where data must move.
  void use(size_t i, const Placement& to) {
    if (has(i)) {
      at(i) = local_as(tensor(i), to);
    }
  }
  /// Replaces argument i by its local tensor as it is.
  void use_local(size_t i) {
    if (has(i)) {
      at(i) = at::Tensor(local(i));
    }
  }
  /// All arguments that are still the program's: by whole tensors.
  void use_whole(size_t i) {
    use(i, Replicate());
  }
  /// Runs the operator; its results take the place of the arguments.
  void run() {
    if (can_redispatch()) {
      op_.redispatchBoxed(keys_, &stack_);
    } else {
      op_.callBoxed(stack_);
    }
  }
  /// Leaves results without running the operator.
  void finish(std::initializer_list<c10::IValue> results);

  // ---- Results.

  c10::IValue& result(size_t k = 0) {
    return stack_[stack_.size() - info_.results + k];
  }
  const at::Tensor& local_result(size_t k = 0) {
    return result(k).toTensor();
  }
  /// Result k is this process's part of a tensor of these sizes. An undefined
  /// one stays undefined; `Replicate` stays a plain tensor.
  /// Its memory is in the plain result's order: what is a view there is one here.
  /// `like`: strides that this order follows where LibTorch does not tell it; empty
  /// where that is not known.
  void place_result(
      size_t k,
      const Placement& placement,
      c10::IntArrayRef sizes,
      c10::IntArrayRef like = {});
  /// The same, with the local result's sizes but for `n` rows in the cut
  /// dimension (of shards).
  void place_result(size_t k, const Placement& placement, int64_t n = 0);
  /// The same for a tensor of a list of results. `like`: the strides of the plain
  /// result; empty: those that the parts show.
  at::Tensor placed(
      const at::Tensor& local,
      const Placement& placement,
      int64_t n = 0,
      c10::IntArrayRef like = {}) const;
  /// In-place operators return the tensor that was passed.
  void return_self(const at::Tensor& self) {
    result() = self;
  }
  /// To be called at the end: results that share memory with a gathered unit become
  /// copies, because that memory will be used again.
  void leave_units() {
    if (C10_UNLIKELY(!read_units_.empty())) {
      copy_out_of_units();
    }
  }

 private:
  /// Whether the dispatcher need not look at the arguments again.
  bool can_redispatch() const {
    if ((bits_of(keys_) & ~c10::full_backend_mask) != kDense) {
      return false;
    }
    for (const auto i : info_.tensors) {
      const auto& value = at(i);
      if (!value.isNone() && !(value.isTensor() && is_plain(value.toTensor()))) {
        return false;
      }
    }
    return true;
  }
  /// Keeps the arguments where one does not lie in memory in the order of its
  /// dimensions: results may follow it, and so may the views that are made of them.
  void keep_unordered();
  void copy_out_of_units();
  /// Whether it is an argument that the operator writes.
  bool is_written(const at::Tensor& tensor) const;
  at::Tensor made(
      size_t k,
      const at::Tensor& local,
      const Placement& placement,
      c10::IntArrayRef sizes,
      c10::IntArrayRef like) const;
  /// The strides of the plain result k, by the operator on tensors without memory;
  /// empty where LibTorch cannot say.
  Sizes plain_strides(size_t k) const;
  /// The strides of a result that lies channels-last, where an argument does and
  /// nothing speaks against it in a local result, whose stride along `cut` says
  /// nothing; else empty.
  Sizes channels_last_strides(
      const at::Tensor& local,
      int64_t cut,
      c10::IntArrayRef sizes) const;

  const c10::OperatorHandle& op_;
  const OperatorInfo& info_;
  torch::jit::Stack& stack_;
  size_t base_;
  Axis& axis_;
  /// Those that the operator was called with, as far as they are below `kKey`;
  /// none where they are not known.
  c10::DispatchKeySet keys_;
  /// The program's arguments, with the whole tensors' sizes and strides; empty
  /// where all are in the order of their dimensions.
  std::vector<c10::IValue> unordered_;
  /// A dimension of one entry has a stride that no new tensor's has, or some process
  /// has a single row of an argument, so that parts do not show the plain result's.
  bool irregular_ = false;
  /// Arguments were brought to other places; or the results are those of other
  /// operators.
  mutable bool moved_ = false;
  /// Parameters that were read as a unit has gathered them.
  mutable c10::SmallVector<at::Tensor, 2> read_units_;
};

/// The rule, flags and arguments of an operator, looked up once per thread.
ACCEL_API const OperatorInfo& info_of(const c10::OperatorHandle& op);

/// The axis of lowest index along which one of the arguments is distributed;
/// null where none is. Throws where tensors of two meshes meet.
ACCEL_API Axis* axis_of(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack);

/// Does one operator: the fallback for `kKey`, and what kernels call that know
/// no better. `keys`: what the dispatcher called it with; none where that is not
/// known.
ACCEL_API void handle(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    c10::DispatchKeySet keys = {});

} // namespace accel::distributed
