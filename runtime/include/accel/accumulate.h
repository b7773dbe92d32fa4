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
/// this body, and switches mixed precision on. Where the loop is left inside of
/// it (`break`), its loader is not the active one any more.
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
