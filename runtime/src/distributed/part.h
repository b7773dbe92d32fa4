#pragma once

#include "distributed/axis.h"
#include "distributed/on_host.h"
#include "distributed/pool.h"
#include "distributed/units.h"

#include <accel/distributed/placement.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <memory>

namespace accel::distributed {

using Sizes = c10::SmallVector<int64_t, 5>;

// Loops over the dimensions of a tensor have few rounds: what makes long ones quick
// is a loss there.
#if defined(__clang__)
#define ACCEL_FEW_ROUNDS \
  _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
#else
#define ACCEL_FEW_ROUNDS
#endif

/// `sizes = list`, quickly where these are few.
C10_ALWAYS_INLINE void assign(Sizes& sizes, c10::IntArrayRef list) {
  sizes.resize_for_overwrite(list.size());
  auto* to = sizes.data();
  ACCEL_FEW_ROUNDS
  for (const int64_t n : list) {
    *to++ = n;
  }
}

/// The dispatch key that distributed tensors have beside their backend's: below
/// autograd, and used by nothing else in C++ programs.
constexpr auto kKey = c10::DispatchKey::Fake;

struct Part;
using PartPtr = c10::intrusive_ptr<Part>;

/// How a view was made of another tensor: enough to make it again of that
/// tensor's whole value.
struct ViewOf : c10::intrusive_ptr_target, Pooled<ViewOf> {
  ViewOf(PartPtr parent, c10::OperatorHandle op)
      : parent(std::move(parent)), op(std::move(op)) {}
  /// Makes it of `tensor`: calls the operator.
  ACCEL_API at::Tensor of(const at::Tensor& tensor) const;

  PartPtr parent;
  c10::OperatorHandle op;
  /// Behind the first one.
  c10::SmallVector<c10::IValue, 4> arguments;
  /// In their place where they are one list of integers.
  std::optional<Sizes> integers;
  /// Which of the results.
  size_t output = 0;
};

/// What a distributed tensor is made of. It hangs on a `TensorImpl` as backend
/// metadata, whose sizes and strides are the whole tensor's; shallow copies
/// (`detach`, `data`, `set_data`) share it.
///
/// Parts that are views of each other are a family, whose root is no view.
/// Views that a rule has made share memory with their parent's local tensor.
/// What cannot be viewed in parts (`x[0]` of cut rows) is a view of `whole`,
/// the family's gathered value. As long as nothing is written the two agree;
/// before a write, and where a sum is needed whole, the root becomes replicated
/// (`settle`), its local tensor is `whole`, and every view is made of it again when
/// it is next used (`follow`).
struct Part : c10::BackendMeta, Pooled<Part> {
  /// A blank one: of no tensor yet.
  Part() = default;
  ~Part() override {
    if (C10_UNLIKELY(unit != nullptr)) {
      unit->leave(this);
    }
  }
  /// A blank one becomes the part of a tensor.
  C10_ALWAYS_INLINE void begin(
      Axis& a,
      at::Tensor&& l,
      const Placement& p,
      c10::IntArrayRef s) {
    axis = &a;
    local = std::move(l);
    placement = p;
    assign(sizes, s);
  }
  /// Its tensor is gone: becomes blank. False, having done nothing, of one that had
  /// what few parts have.
  C10_ALWAYS_INLINE bool end() {
    if (C10_UNLIKELY(
            unit != nullptr || whole.defined() || kept.defined() ||
            keeps_whole || on_host != nullptr)) {
      return false;
    }
    view.reset();
    placement = Placement();
    strides.clear();
    settled = false;
    samples = -1;
    family = 0;
    lineage = 0;
    local.reset();
    return true;
  }

  Axis* axis = nullptr;
  /// This process's part: a plain tensor, or one that is distributed along the
  /// mesh's further axes.
  at::Tensor local;
  Placement placement;
  /// Of the whole tensor.
  Sizes sizes;
  /// The order of the whole tensor's memory, of a root: its strides are dense.
  /// Empty where the order is that of the dimensions.
  Sizes strides;
  /// Null for a root.
  c10::intrusive_ptr<ViewOf> view;
  /// The gathered value; undefined while nobody needed it.
  at::Tensor whole;
  /// Of a root: `whole` is the tensor that was cut, in the program's memory. Whoever
  /// shares it sees what is written here, as on one device.
  bool borrows = false;
  /// Of a root that is a batch: the dimension along which it is cut, else -1. Once
  /// settled, because somebody wrote to it, it is cut again for whoever only reads.
  int8_t samples = -1;
  /// Of a root: the gathered value is kept where it has been needed, as `kept`,
  /// until somebody writes or drops it (a weight between forward and backward).
  /// Nothing is a view of it.
  bool keeps_whole = false;
  at::Tensor kept;
  /// Of a root: the parameters that are gathered with it; null where it is gathered
  /// by itself. And which of them it is.
  UnitPtr unit;
  uint32_t number_in_unit = 0;
  /// Of a root that may lie on the host, on_host.h; else null.
  std::unique_ptr<OnHost> on_host;
  /// Of a root: what recompute.h knows it by; 0 where that has not seen it.
  uint64_t family = 0;
  /// What it was computed from, lineage.h; a root's changes when the family is written.
  uint64_t lineage = 0;
  /// The root: has become replicated, with `whole` as its local tensor. A view:
  /// has been made of that again.
  bool settled = false;
};

/// The root of a part's family.
inline Part* root_of(Part* part) {
  while (part->view) {
    part = part->view->parent.get();
  }
  return part;
}

/// The gathered value of a part, replicated and aliasing its family's.
/// Collective when it is not there yet; `operation`: what needs it, for errors.
ACCEL_API const at::Tensor& whole_of(Part* part, const char* operation = "a view");

/// Makes a view of a settled family again.
ACCEL_API void follow(Part* part);

/// Makes a family replicated: before a write that cannot be done in parts, or
/// that views of the gathered value have to see; and a sum that `operation` needs
/// whole, so that it is not added up again. Collective.
ACCEL_API void settle(Part* part, const char* operation = "a view");

/// A sum is no larger than its terms: one that has been added up stays so. Not that
/// of which the part is a small piece.
ACCEL_API bool is_worth_settling(Part& part);

// Batches, batch.cpp.

/// Says that a distributed tensor which has just been made is a batch. `whole`: the
/// plain tensor that it was cut from, which all processes have; the batch borrows its
/// memory, for the case that it is written and others share that (a batch that is a view
/// of its data set). Undefined where there is none.
ACCEL_API void set_batch(const at::Tensor& tensor, const at::Tensor& whole = {});

/// Before a part is settled only so that its memory can be read or written: whoever
/// else has it, and only reads, is given it cut as a batch is. Not parameters.
ACCEL_API void keep_cut(Part* part);

/// Before the first write to a part whose root borrows: that no longer does where
/// nobody else has the memory.
ACCEL_API void give_back(Part* part);

/// A batch that was settled, or a view of one, for an operator that only reads: this
/// process's samples of it. Nothing is communicated. Other tensors as they are.
ACCEL_API at::Tensor cut_again(const at::Tensor& tensor, Axis& axis);

/// The gathered value of a part whose root keeps it, for reading. Collective when
/// it is not there yet.
ACCEL_API at::Tensor kept_whole(Part* part, const char* operation);

/// Before a write to a part in place: views of the gathered value exist?
inline void before_write(Part* part) {
  Part* root = root_of(part);
  root->kept.reset();
  if (C10_UNLIKELY(root->on_host != nullptr)) {
    root->on_host->written = true;
  }
  if (C10_UNLIKELY(root->unit != nullptr)) {
    root->unit->written(*root);
  }
  if (root->whole.defined() && !root->settled) {
    if (root->borrows) {
      give_back(part);
    }
    if (root->whole.defined()) {
      settle(part);
    }
  }
}

/// By value: `raw_repr` is not const in LibTorch 2.7.
inline uint64_t bits_of(c10::DispatchKeySet keys) {
  return keys.raw_repr();
}

/// The keys that every tensor that is nothing but dense has, and those that do
/// not matter to that.
const uint64_t kDense = bits_of(c10::DispatchKeySet(c10::DispatchKey::Dense));
const uint64_t kWhatever = c10::full_backend_mask |
    bits_of(c10::autograd_dispatch_keyset_with_ADInplaceOrView) |
    bits_of(c10::autocast_dispatch_keyset);

/// A tensor that is nothing but dense: not distributed, not sparse, quantised,
/// conjugated, named … What is left of an operator's keys below `kKey` is right
/// for such tensors, so that the kernel can be called with these at once.
inline bool is_plain(const at::Tensor& tensor) {
  // The undefined tensor has no keys.
  return (bits_of(tensor.unsafeGetTensorImpl()->key_set()) & ~kWhatever) ==
      kDense;
}

/// The keys below `kKey` of an operator on plain tensors that was called on
/// distributed ones.
inline c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

inline void bring_if_away(Part& part) {
  if (C10_UNLIKELY(part.on_host != nullptr) && part.on_host->is_away()) {
    bring(part);
  }
}

/// The same as `part_of`, for those who only ask where it lies: what is away stays on the
/// host, and so does its local tensor.
inline Part* part_at_rest(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(kKey)) {
    return nullptr;
  }
  auto* part = static_cast<Part*>(impl->get_backend_meta());
  if (C10_UNLIKELY(
          part->view != nullptr && !part->settled &&
          root_of(part)->settled)) {
    follow(part);
  }
  return part;
}

/// The part of a distributed tensor, null for any other.
inline Part* part_of(const at::Tensor& tensor) {
  Part* part = part_at_rest(tensor);
  if (part != nullptr) {
    bring_if_away(*part);
  }
  return part;
}

/// This process's plain part, of however many axes; the tensor itself where it is plain.
inline at::Tensor leaf_of(const at::Tensor& tensor) {
  at::Tensor leaf = tensor;
  while (Part* part = part_of(leaf)) {
    leaf = at::Tensor(part->local);
  }
  return leaf;
}

/// A distributed tensor out of this process's part. `sizes` are those of the
/// whole tensor; its strides are dense, in the order in which the parts lie in
/// memory. Where that cannot be told from the parts (some process has a single
/// row), it is the order of `like`, strides of another whole tensor; or that of
/// the other dimensions, the cut one in front of those behind it. All processes
/// find the same order. A local tensor with gaps,
/// or in another order, is copied. `exact`: `like` are the strides that the plain
/// result has, whatever the parts' are.
ACCEL_API at::Tensor make_tensor(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef like = {},
    bool exact = false);

/// Whether some process has a single row of a tensor that is placed so: the
/// stride of what is cut says nothing there.
bool has_single_rows(
    const Axis& axis,
    const Placement& placement,
    c10::IntArrayRef sizes);

/// The same of a local tensor that is contiguous, where the whole one is, too:
/// looks at nothing.
at::Tensor make_contiguous(
    Axis& axis,
    at::Tensor&& local,
    const Placement& placement,
    c10::IntArrayRef sizes);

/// A result in the place of `like`, which has its sizes and no unusual ones, and gives
/// the plain one its order in memory. `part`: that of `like`.
at::Tensor make_like(const Part& part, at::Tensor&& local, const at::Tensor& like);

/// The strides that LibTorch gives a new tensor. `is_contiguous()` passes over
/// dimensions of one entry, whose strides tell whether a tensor is channels-last.
inline bool has_usual_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t step = 1;
  ACCEL_FEW_ROUNDS
  for (size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != step) {
      return false;
    }
    step *= sizes[d] > 1 ? sizes[d] : 1;
  }
  return true;
}
inline bool has_usual_strides(const at::Tensor& tensor) {
  return has_usual_strides(tensor.sizes(), tensor.strides());
}

/// Whether a dimension of one entry may have another stride than a new tensor's.
inline bool has_unusual_ones(const at::Tensor& tensor) {
  ACCEL_FEW_ROUNDS
  for (const int64_t n : tensor.sizes()) {
    if (C10_UNLIKELY(n == 1)) {
      return !has_usual_strides(tensor);
    }
  }
  return false;
}

/// `a == b`, quickly where these are few.
inline bool same_sizes(c10::IntArrayRef a, c10::IntArrayRef b) {
  if (a.size() != b.size()) {
    return false;
  }
  const auto* other = b.data();
  ACCEL_FEW_ROUNDS
  for (const int64_t n : a) {
    if (n != *other++) {
      return false;
    }
  }
  return true;
}

/// `tensor` in the order of memory that `like` has, or a copy of `like` where that
/// is repeated or has gaps: itself where it lies so. What is cut and gathered
/// again is viewed and copied as if it had not been.
at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like);

/// The gathered value of `like` as it lies there, gaps and repetitions included: what
/// TensorIterator makes of it, and whether a reshape is a view, depend on them. What is
/// distributed along further axes has these strides, too, and parts without gaps; along
/// these axes what is repeated is dense between its repetitions.
at::Tensor whole_as(const at::Tensor& whole, const at::Tensor& like);

/// A view of a part that a rule has made: shares memory with `local`, gaps and
/// all. Whoever has called the rule gives it its strides and its parent.
at::Tensor make_local_view(
    Axis& axis,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes);

/// A view: shares memory with its parent's local tensor; strides and offset are
/// those that the plain view would have.
ACCEL_API at::Tensor make_view(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    int64_t offset,
    c10::intrusive_ptr<ViewOf> view);

/// The view that `t` makes of a tensor of two dimensions, whose local tensor is
/// nothing but dense. `op`: "aten::t". Makes both views itself, LibTorch's
/// operator takes longer.
at::Tensor view_transposed(
    const at::Tensor& base,
    Part* part,
    const Placement& placement,
    const c10::OperatorHandle& op);

/// The same of a view whose only arguments are its sizes, where all four tensors
/// are contiguous.
at::Tensor view_contiguous(
    const at::Tensor& base,
    Part* part,
    c10::IntArrayRef local_sizes,
    const Placement& placement,
    c10::IntArrayRef sizes,
    const c10::OperatorHandle& op);

/// How a strided tensor lies in its memory.
struct Geometry {
  Sizes sizes;
  Sizes strides;
  int64_t offset = 0;
};
Geometry geometry_of(const at::Tensor& tensor);

/// The same of any view: `local` is what it makes of the local tensor, `whole`
/// of the distributed one.
at::Tensor view_strided(
    Part* part,
    const Geometry& local,
    const Placement& placement,
    const Geometry& whole,
    c10::intrusive_ptr<ViewOf> view);

/// Another tensor that has the same part, sizes and strides, as shallow copies
/// have.
at::Tensor share_part(const at::Tensor& tensor);

/// The registration of the fallback and the kernels for `kKey`; the first call
/// does it. Every way to make a distributed tensor calls it.
ACCEL_API void install();

} // namespace accel::distributed
