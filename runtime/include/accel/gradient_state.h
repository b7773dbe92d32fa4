#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace accel {

/// Where one data loader stands in its pass. Owned by the loader; the loader
/// writes it, everybody else reads it through `GradientState`.
///
/// For the library itself: a program has no need to name it, and it may change.
struct ACCEL_API DataLoaderState {
  /// True from the moment on which the last batch of this process is handed
  /// out, that is, inside the loop body of the last batch.
  bool end_of_dataloader = false;
  /// Samples of the last global batch that are not duplicates; -1 unknown or
  /// nothing to drop, 0 the last batch is full.
  int64_t remainder = -1;
  /// In the step of that batch the processes have different numbers of samples
  /// (`join_uneven_inputs` only).
  bool uneven = false;
  /// This process has run out of samples: its rows do not count.
  bool ghost = false;
  /// Batches that this pass has handed out.
  int64_t batches = 0;

  // What tells whether the loop over the loader was left. Nothing in the program
  // says so: the loop's iterator belongs to LibTorch. But it holds the batch.

  /// Tensors of the last batch; none where its type is not known.
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> batch;
  /// Guards of loop bodies that work on the last batch and have not ended.
  int64_t open_bodies = 0;
  /// Whether one of them has ended.
  bool body_closed = false;
  /// In this pass `backward` was called outside of any guard.
  bool trains_unguarded = false;
  /// Guards of bodies that have begun, in all passes.
  int64_t bodies = 0;
  /// When the pass began, counted up by `GradientState`.
  int64_t begun = 0;
  /// When the last batch was asked for, counted in the same way.
  int64_t asked = 0;

  /// Back to before a pass.
  void end_pass();
  /// Adds a tensor of the last batch.
  void watch(const at::Tensor& tensor);
  /// No tensor of the last batch exists any more: its loop was left, unless the
  /// body has put others in their places.
  bool batch_is_gone() const;
  /// The loop was left, as far as a checkpoint may rely on it: the batch is gone,
  /// and its body had a guard that has ended, or does not train.
  bool left() const;
};

/// The part of the state that changes from batch to batch: which loader is
/// active, where it stands, and whether gradients are synchronised now.
/// Counterpart of Accelerate's `GradientState`. One per process, not
/// thread-safe: used from the thread that runs the training loop.
///
/// For the library itself: a program has no need to change it, and only
/// `sync_gradients`, `end_of_dataloader`, `in_dataloader`, `remainder` and
/// `num_steps` keep their meaning.
class ACCEL_API GradientState {
 public:
  /// That of this process.
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
    /// Overrides the option of that name.
    std::optional<bool> even_batches;
  };
  /// Empty outside of `join_uneven_inputs`.
  std::optional<JoinUneven> join_uneven;

  /// True inside the body of the active loader's last batch; false outside of
  /// any loader. A loop that was left (`break`, `return`, an exception) is over
  /// when no tensor of its batch exists any more.
  bool end_of_dataloader() const;
  /// Whether a loop over a loader goes on.
  bool in_dataloader() const;

  /// Of the loader whose loop has begun last, -1 and false outside of any: what
  /// is to be known of rows that the body gathers. That its batch is gone does
  /// not count, for the body may have put other tensors (on a GPU) in its place.
  int64_t remainder() const;
  /// The same of `DataLoaderState::uneven`.
  bool uneven() const;
  /// The same of `DataLoaderState::ghost`.
  bool ghost() const;
  /// `remainder` inside the body of the last batch, else -1.
  int64_t remainder_of_last_batch() const;

  /// A loader's pass begins and ends. The innermost loader that has begun is
  /// the active one. A loader that is destroyed in the middle of its pass
  /// leaves by itself: only weak references are held.
  void enter(const std::shared_ptr<DataLoaderState>& loader);
  /// A pass ends.
  void leave(const std::shared_ptr<DataLoaderState>& loader);

  /// The loader gives its next batch. One whose body had ended is active again.
  /// Those that have begun inside its body, that were not asked since it was
  /// asked last, or whose batch is gone, count as left until they are asked
  /// again; others go on beside it (two iterators in turns).
  void hand_out(const std::shared_ptr<DataLoaderState>& loader);

  /// `backward` outside of any loop body that has a guard.
  void note_unguarded_backward();

  /// Whether the body that begins now works on a loader's last batch.
  ///
  /// It works on the batches that were asked for since the last body has ended:
  /// of one loader, or of several that the loop advances together, the end of
  /// each of which ends it. Not on that of a loop around a loop, and not on that
  /// of a loop which was left before (its batch is gone, and no body of it has
  /// ever had a guard). Where none was asked for, on the active loader's.
  bool body_ends_pass() const;

  /// How things stand where a loop body begins.
  struct Body {
    /// The loaders whose batches the body works on, the one that was asked last
    /// in front, and which batches they are.
    struct Loader {
      /// Empty when the loader was destroyed.
      std::weak_ptr<DataLoaderState> state;
      /// The number of the batch in its pass.
      int64_t batch = 0;
    };
    /// See `Loader`.
    std::vector<Loader> loaders;
    /// Active loaders outside of the body.
    size_t depth = 0;
  };
  /// A loop body begins: what it works on.
  Body begin_body();
  /// The guard of the body is gone, whatever `end_body` makes of it.
  void close_body(const Body& body);

  /// The body has ended, the loop perhaps too (`break`, `return`, an exception):
  /// until a loader gives another batch it is not the active one. Loaders
  /// that have begun inside the body and were not finished end with it. One that
  /// was advanced inside the body, by hand, stays at its new batch.
  void end_body(const Body& body);

  /// Back to the state at program start (tests, `Accelerator`'s end).
  void reset();

 private:
  using Loader = std::shared_ptr<DataLoaderState>;

  /// The innermost loader that has begun, and the innermost whose batch exists.
  Loader innermost() const;
  Loader active() const;
  /// What `body_ends_pass` describes, the one that was asked last in front.
  std::vector<Loader> loaders_of_body() const;

  mutable std::vector<std::weak_ptr<DataLoaderState>> loaders_;
  /// Passes that have begun, batches that were asked for and bodies that have
  /// ended so far, and what it was when the last body ended.
  int64_t clock_ = 0;
  int64_t last_body_ended_ = 0;
};

} // namespace accel
