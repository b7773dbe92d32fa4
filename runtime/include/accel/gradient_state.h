#pragma once

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
  /// In the step of that batch the processes have different numbers of samples,
  /// and those that have run out hold rows that do not count
  /// (`join_uneven_inputs` only).
  bool uneven = false;
  bool ghost = false;
  /// Batches that this pass has handed out.
  int64_t batches = 0;
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
    /// Active loaders outside of the body.
    size_t depth = 0;
  };
  Body begin_body();
  /// The guard of the body is gone, whatever `end_body` makes of it.
  void close_body(const Body& body);

  /// The body has ended, the loop perhaps too (`break`, `return`, an exception):
  /// until the loader gives another batch it is not the active one. Loaders
  /// that have begun inside the body and were not finished end with it. One that
  /// was advanced inside the body, by hand, stays at its new batch.
  void end_body(const Body& body);

  /// Back to the state at program start (tests, `Accelerator`'s end).
  void reset();

 private:
  std::shared_ptr<DataLoaderState> active() const;

  mutable std::vector<std::weak_ptr<DataLoaderState>> loaders_;
};

} // namespace accel
