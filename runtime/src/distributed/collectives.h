#pragma once

#include "distributed/part.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <vector>

namespace accel::distributed {

/// While it lives, operators of this thread are those of the library itself:
/// autograd does not record them, and only distributed tensors come through
/// the fallback (random placements send all tensors through it).
class InsideGuard {
 public:
  InsideGuard() {
    ++depth_;
    const auto state = c10::impl::tls_local_dispatch_key_set();
    included_ = state.included_.has(kKey);
    if (C10_UNLIKELY(included_)) {
      c10::impl::tls_set_dispatch_key_included(kKey, false);
    }
    // Whatever comes through autograd is below it already.
    if (!state.excluded_.has_all(
            c10::autograd_dispatch_keyset_with_ADInplaceOrView)) {
      below_autograd_.emplace();
    }
  }
  ~InsideGuard() {
    --depth_;
    if (C10_UNLIKELY(included_)) {
      c10::impl::tls_set_dispatch_key_included(kKey, true);
    }
  }
  InsideGuard(const InsideGuard&) = delete;
  InsideGuard& operator=(const InsideGuard&) = delete;

  /// Whether one lives in this thread: what it does is part of another operator.
  static bool lives() {
    return depth_ > 0;
  }

 private:
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd_;
  bool included_ = false;
  inline static thread_local int depth_ = 0;
};

/// The whole tensor out of the processes' parts: `local` itself where it is
/// replicated. Collective otherwise; `operation` is named in errors. To be
/// called inside of an InsideGuard, like all below.
ACCEL_API at::Tensor gather(
    Axis& axis,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    const char* operation);

/// The whole plain tensor, of however many axes; the tensor itself where it is
/// plain. Collective where it is not.
ACCEL_API at::Tensor gather_all(const at::Tensor& tensor, const char* operation);

/// The reduction of the processes' tensors; a fresh tensor. Collective.
ACCEL_API at::Tensor reduce(
    Axis& axis,
    const at::Tensor& local,
    ReduceOp op,
    const char* operation);

/// This process's tensor of placement `to`, out of that of placement `from`.
/// Collective where data must move, which all processes know alike. The result
/// may share memory with `local`.
ACCEL_API at::Tensor redistribute_local(
    Axis& axis,
    const at::Tensor& local,
    const Placement& from,
    const Placement& to,
    c10::IntArrayRef sizes,
    const char* operation);

/// This process's rows of a whole tensor that it holds: a view of it where they
/// are a range. What is cut in the same dimension along a further axis is gathered
/// there first, for how many rows were left there would depend on the process; the
/// result is no view then. Collective along further axes.
ACCEL_API at::Tensor own_rows(
    const Axis& axis,
    const at::Tensor& whole,
    const Placement& placement);

/// Copies `rows` to this process's rows of a plain tensor.
ACCEL_API void set_own_rows(
    const Axis& axis,
    const at::Tensor& whole,
    const Placement& placement,
    const at::Tensor& rows);

/// The local tensor, in the same placements along further axes as the other
/// processes' along this one. A rule there sees sizes that are cut along this
/// axis: where one process has a single row it may have decided otherwise.
/// Collective where the mesh has further axes; what differs becomes replicated
/// there.
ACCEL_API at::Tensor agreed(
    Axis& axis,
    const at::Tensor& local,
    const char* operation);

/// Which of these local tensors lie along further axes as they do on all processes of
/// the axis, in one message; the same answer everywhere. Collective where the mesh has
/// further axes.
ACCEL_API std::vector<bool> agree(
    Axis& axis,
    const std::vector<at::Tensor>& locals,
    const char* operation);

/// The same tensor without cuts of dimension `dim` along the axes of its own places.
/// Collective along these where there are any.
ACCEL_API at::Tensor without_cut(const at::Tensor& tensor, int64_t dim);

/// Whether on any process of the axis the local tensor is cut in dimension `dim`
/// along a further axis, too. Collective where the mesh has further axes; the
/// same answer everywhere.
ACCEL_API bool any_cut_further(
    Axis& axis,
    const at::Tensor& local,
    int64_t dim,
    const char* operation);

/// What operators have moved since the program began; for reports and tests.
struct Traffic {
  int64_t gathers = 0;
  int64_t reductions = 0;
  /// From parts to parts cut otherwise.
  int64_t exchanges = 0;
  int64_t bytes = 0;
  /// How long the reductions took, without waiting for other processes of the host.
  int64_t reduction_nanoseconds = 0;
};
ACCEL_API Traffic& traffic();

} // namespace accel::distributed
