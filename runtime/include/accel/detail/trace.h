#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::detail {

/// What `accel verify` wants to know about a program that uses accel: its
/// global quantities, which no process can see from outside. Set by the library
/// that `accel verify` loads into the program (runtime/verify/trace); without
/// it everything here is one test of a pointer.
class TraceSink {
 public:
  virtual ~TraceSink() = default;

  /// As many backwards have been recorded as were asked for.
  virtual bool finished() const = 0;

  /// Writes down what there is and ends the process with exit code 0.
  virtual void leave() = 0;

  /// A backward begins, on this thread. `global_loss`: see `TracedBackward`;
  /// `rows` of the global batch, 0 where that is not known.
  virtual void begin(
      const at::Tensor& loss,
      double global_loss,
      int64_t rows) = 0;

  /// It has ended. `averaged`: the gradients are the ones of all processes.
  virtual void end(bool averaged) = 0;

  /// It has thrown.
  virtual void fail() = 0;

  /// The last Accelerator ends, in good order on all processes: what is in parts can
  /// be put together for the last time.
  virtual void end_together() = 0;
};

/// One backward over all processes, as the sink is told about it:
///
///     TracedBackward traced(loss, weight);
///     … backward and averaging …
///     traced.end(/*averaged=*/plan.synchronize);
///
/// `weight` is this process's part in the global loss, which is the sum of
/// weight x loss over the processes: local / global samples where losses are
/// means, 1 where they are sums, 1 / processes where every process has a batch
/// of its own. Where a sink is set, every process must make it, since the sum
/// is a collective on `Channel::kMain`.
class ACCEL_API TracedBackward {
 public:
  /// `gradient`: what backward begins with, by which the loss counts; undefined: 1.
  TracedBackward(
      const at::Tensor& loss,
      double weight,
      const at::Tensor& gradient = {}) {
    if (sink_ != nullptr) {
      begin(loss, weight, gradient);
    }
  }

  TracedBackward(const TracedBackward&) = delete;
  TracedBackward& operator=(const TracedBackward&) = delete;

  ~TracedBackward() {
    if (begun_) {
      sink_->fail();
    }
  }

  void end(bool averaged) {
    if (begun_) {
      begun_ = false;
      sink_->end(averaged);
    }
  }

  /// `TraceSink::end_together`, where somebody looks on.
  static void end_together() {
    if (sink_ != nullptr) {
      sink_->end_together();
    }
  }

  /// Null: nobody looks on.
  static void set_sink(TraceSink* sink) {
    sink_ = sink;
  }

 private:
  void begin(const at::Tensor& loss, double weight, const at::Tensor& gradient);

  bool begun_ = false;
  static TraceSink* sink_;
};

/// Grows with every change of `TraceSink`.
constexpr int kTraceSinkVersion = 2;

} // namespace accel::detail

/// `accel::distributed::full_tensor`, for that library, which is not linked with
/// this one. Collective where the tensor is distributed.
extern "C" ACCEL_API void accel_full_tensor(
    const at::Tensor* tensor,
    at::Tensor* whole);

/// How the library that `accel verify` loads introduces itself. Returns false,
/// and does nothing, where `version` is not `kTraceSinkVersion`.
extern "C" ACCEL_API bool accel_set_trace_sink(
    int version,
    accel::detail::TraceSink* sink);
