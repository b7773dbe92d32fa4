#pragma once

#include <accel/batch_share.h>
#include <accel/export.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace accel {

/// Where one data loader stands in its pass. Owned by the loader; the loader
/// writes it, everybody else reads it through `GradientState`.
struct DataLoaderState {
  /// True from the moment on which the last batch of this process is handed
  /// out, that is, inside the loop body of the last batch.
  bool end_of_dataloader = false;
  /// Samples of the last global batch that are not duplicates; -1 unknown or
  /// nothing to drop, 0 the last batch is full.
  int64_t remainder = -1;
  /// Rows of the batch that was handed out last (`match_single_device` only).
  std::optional<BatchShare> share;
  /// In the step of that batch the processes have different numbers of samples,
  /// and those that have run out hold rows that do not count
  /// (`join_uneven_inputs` only).
  bool uneven = false;
  bool ghost = false;
  /// Batches that this pass has handed out.
  int64_t batches = 0;
  /// The loop body that worked on the last one has ended: the loop goes on, or
  /// it was left.
  bool body_ended = false;
  /// Guards of loop bodies that work on the last one and have not ended.
  int64_t open_bodies = 0;
};

/// The part of the state that changes from batch to batch: which loader is
/// active, where it stands, and whether gradients are synchronised now.
/// Counterpart of Accelerate's `GradientState`. One per process, not
/// thread-safe: used from the thread that runs the training loop.
class ACCEL_API GradientState {
 public:
  static GradientState& get();

  /// Whether the next backward averages gradients and the optimizer steps.
  bool sync_gradients = true;
  /// Micro-batches per optimizer step.
  int64_t num_steps = 1;
  /// Whether the end of a loader ends an accumulation window.
  bool sync_with_dataloader = true;
  /// Whether micro-steps count for schedulers (`GradientAccumulationPlugin`).
  bool adjust_scheduler = false;
  /// Whether gradients are averaged on every micro-step.
  bool sync_each_batch = false;
  /// Micro-steps since the last window ended.
  int64_t step = 0;

  /// What `join_uneven_inputs` has set, while its guard lives.
  struct JoinUneven {
    std::optional<bool> even_batches;
  };
  std::optional<JoinUneven> join_uneven;

  /// The active loader's `uneven` and `ghost`; false outside of any loader.
  bool uneven() const;
  bool ghost() const;

  /// True inside the body of the active loader's last batch; false outside of
  /// any loader.
  bool end_of_dataloader() const;
  /// The active loader's `remainder`, -1 outside of any loader.
  int64_t remainder() const;
  bool in_dataloader() const;

  /// Rows of the batch that is being worked on: the innermost of an explicit
  /// `set_share` and the active loader's. Empty when whole batches are being
  /// worked on (between loops, before `shard_batch`, in what
  /// `Accelerator::replicated` runs), and in every thread but the one that
  /// iterates or calls `set_share`.
  std::optional<BatchShare> share() const;

  /// Rows of the batch that was worked on last, also when its loop has ended;
  /// empty before the first one.
  std::optional<BatchShare> last_share() const {
    return last_share_;
  }

  /// Called by `shard_batch`; `clear_share` by the accumulate guard when it is
  /// made and when it ends.
  void set_share(BatchShare share);
  void clear_share();

  /// A loader's pass begins and ends. The innermost loader that has begun is
  /// the active one. A loader that is destroyed in the middle of its pass
  /// leaves by itself: only weak references are held.
  void enter(const std::shared_ptr<DataLoaderState>& loader);
  void leave(const std::shared_ptr<DataLoaderState>& loader);

  /// The loader gives its next batch. One whose body had ended is active again.
  void hand_out(const std::shared_ptr<DataLoaderState>& loader);

  /// How things stand where a loop body begins.
  struct Body {
    /// The loader whose batch the body works on, and which batch that is.
    std::weak_ptr<DataLoaderState> loader;
    int64_t batch = 0;
    /// Active loaders, and what `set_share` has told, outside of the body.
    size_t depth = 0;
    std::optional<BatchShare> explicit_share;
    size_t explicit_depth = 0;
  };
  Body begin_body();
  /// The guard of the body is gone, whatever `end_body` makes of it.
  void close_body(const Body& body);

  /// The body has ended, the loop perhaps too (`break`, `return`, an exception):
  /// until the loader gives another batch nothing is known of a batch. Loaders
  /// that have begun inside the body and were not finished end with it. One that
  /// was advanced inside the body, by hand, stays at its new batch.
  void end_body(const Body& body);

  /// No batch is being worked on, but the pass that the last body belongs to is
  /// neither at its end nor has it given another batch.
  bool between_batches() const;

  /// Back to the state at program start (tests, `Accelerator`'s end).
  void reset();

 private:
  friend class ShareGuard;

  std::shared_ptr<DataLoaderState> active() const;

  mutable std::vector<std::weak_ptr<DataLoaderState>> loaders_;
  /// Whose body has ended last.
  std::weak_ptr<DataLoaderState> last_body_;
  std::optional<BatchShare> last_share_;
  std::optional<BatchShare> explicit_share_;
  /// How many loaders were active when `set_share` was called.
  size_t explicit_depth_ = 0;
};

} // namespace accel
