#pragma once

#include <accel/autocast.h>
#include <accel/export.h>
#include <accel/gradient_state.h>

namespace accel {

/// What `Accelerator::join_uneven_inputs` has set is in force while it lives.
///
/// Without `even_batches` the processes get different numbers of batches, and
/// those that have more would wait for ever for those that have run out. In
/// loops that begin while the guard lives, a process that has run out goes on
/// with two samples that do not count (`backward` adds nothing for them, and
/// `gather_for_metrics` leaves them out; `gather` and `reduce` do not), so that
/// optimizers and schedulers stay alike; gradients are divided by the number of
/// all processes, as torch's `Join` does. Keep the body's guard (`accumulate`).
///
///     auto join = accelerator.join_uneven_inputs(/*even_batches=*/false);
///
/// `even_batches` overrides the option while the guard lives. Does nothing with
/// `even_batches`, with one process, and in `match_single_device`, which shares
/// batches of any size.
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
