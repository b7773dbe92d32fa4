#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

// What the processes tell each other about a batch that comes from a stream;
// batch_dealer.h decides what.
namespace accel::detail {

/// What all processes know of one step.
struct DealtStep {
  /// A batch has been dealt; otherwise the pass is over.
  bool batch = false;
  /// No other one follows.
  bool last = false;
  /// See `DataLoaderState::remainder`.
  int64_t remainder = -1;
  /// Rows of the global batch; -1 where it is not known.
  int64_t rows = -1;
  /// Of the batches that were read for this step.
  uint64_t fingerprint = 0;
};

/// Process 0 tells the others about the step and gives each its part
/// (`parts[r]`, empty for itself; no parts at all: nobody gets any), and the
/// default generator where reading has drawn from it. Every process must be in
/// `send_step` or `receive_step`.
ACCEL_API void send_step(
    const DealtStep& step,
    const std::vector<std::string>& parts,
    bool send_generator);

/// Process 0 could not read: all others throw.
ACCEL_API void send_failure(const std::exception& error) noexcept;

struct ReceivedStep {
  DealtStep step;
  /// This process's part, bytes.
  at::Tensor part;
};
ACCEL_API ReceivedStep receive_step();

/// Every process has read the stream itself: throws on all of them where they
/// have not read the same.
ACCEL_API void check_same_stream(const DealtStep& step);

/// The Accelerator's; the CPU where there is none.
ACCEL_API at::Device current_device();

} // namespace accel::detail
