#pragma once

#include <accel/autocast.h>
#include <accel/export.h>

namespace accel {

/// One micro-step: from `Accelerator::accumulate` to the end of the loop body.
///
/// It decides whether gradients are synchronised and the optimizer steps in
/// this body, switches mixed precision on, and forgets the rows of
/// `shard_batch` when it begins and when it ends.
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
};

} // namespace accel
