#pragma once

#include <accel/autocast.h>
#include <accel/export.h>
#include <accel/gradient_state.h>

namespace accel {

/// The body of a loop over a data loader that does not train: made first, kept
/// until the end of the body (`Accelerator::loop_body`).
class ACCEL_API LoopBodyGuard {
 public:
  LoopBodyGuard(LoopBodyGuard&& other) noexcept;
  LoopBodyGuard& operator=(LoopBodyGuard&&) = delete;
  ~LoopBodyGuard();

 private:
  friend class Accelerator;
  LoopBodyGuard();

  bool active_ = true;
  GradientState::Body body_;
};

/// What `Accelerator::join_uneven_inputs` has set is in force while it lives.
class ACCEL_API JoinUnevenGuard {
 public:
  JoinUnevenGuard(JoinUnevenGuard&& other) noexcept;
  JoinUnevenGuard& operator=(JoinUnevenGuard&&) = delete;
  ~JoinUnevenGuard();

 private:
  friend class Accelerator;
  explicit JoinUnevenGuard(std::optional<bool> even_batches);

  bool active_ = true;
  std::optional<GradientState::JoinUneven> before_;
};

/// One micro-step: from `Accelerator::accumulate` to the end of the loop body.
///
/// It decides whether gradients are synchronised and the optimizer steps in
/// this body, switches mixed precision on, and forgets the rows of
/// `shard_batch` when it begins and when it ends.
///
/// In `match_single_device` the rows of the loader's batch end with it too, so
/// that a `break` out of the loop leaves nothing behind. What reads the batch
/// belongs inside.
class ACCEL_API AccumulateGuard {
 public:
  AccumulateGuard(AccumulateGuard&& other) noexcept;
  AccumulateGuard& operator=(AccumulateGuard&&) = delete;
  ~AccumulateGuard();

 private:
  friend class Accelerator;
  explicit AccumulateGuard(AutocastGuard autocast);

  bool active_ = true;
  AutocastGuard autocast_;
  GradientState::Body body_;
};

} // namespace accel
