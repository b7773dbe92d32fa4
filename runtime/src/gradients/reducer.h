#pragma once

#include <accel/detail/communicator.h>

#include "core/operation_log.h"
#include "gradients/buckets.h"
#include "gradients/parameters.h"
#include "gradients/sparse.h"

#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::detail {

class GradientHook;

/// What one call of `backward` is to do with the gradients.
struct BackwardPlan {
  /// Average over the processes.
  bool synchronize = true;
  /// Keep the result aside for the next micro-step.
  bool hold = false;
  /// Leave this process's contribution out (it counts as zeros).
  bool ghost = false;
  /// Travels with the gradients; may be null.
  std::shared_ptr<Enclosed> enclosed;
};

/// The same on all processes.
struct ReducerOptions {
  /// Of a bucket, but for the first one, which is small.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// The type in which gradients are sent; as they are where there is none.
  std::optional<at::ScalarType> compression;
  /// What is done with gradients that are plain tensors: true, all processes
  /// have the same, which count once (`match_single_device`); false, they are
  /// those of different batches, and are averaged. Gradients that are
  /// distributed tensors know themselves what they are parts of.
  bool plain_is_whole = false;
};

/// Accumulates and averages the gradients of the prepared parameters.
///
/// With several processes: a hook on each parameter moves its gradient into a
/// flat bucket as soon as backward has computed it. Buckets that are complete
/// are all-reduced while backward goes on, in one fixed order on all processes
/// (the order of the collectives must be the same everywhere, the order of
/// completion need not be). Parameters that a process did not reach contribute
/// the gradient they have, or zeros; those that no process reached keep theirs.
///
/// Whether a gradient is sparse need not be known before there is one. The first
/// time all processes learn it from the bucket (Bucket), and send the rows behind
/// it; from then on the parameter has no place in a bucket, and one message in
/// every synchronising backward tells what rows there are (average_sparse).
///
/// The average is one of whole gradients: of what was accumulated before, too.
/// Gradients that are equal on all processes already stay what they are, so
/// any number of backwards, over any models, may come before a step.
///
/// Where plain gradients are whole (`plain_is_whole`) nothing is averaged: each
/// process contributes its part of a distributed gradient, process 0 what all
/// have in full, and the sum is the gradient. Buckets in which nothing is
/// distributed are not sent.
///
/// With one process there are no hooks, no buckets and no copies.
class Reducer {
 public:
  Reducer(
      Communicator& main,
      Communicator& gradients,
      const ReducerOptions& options);
  /// Leaves no hook behind.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Parameters with their names; those that are known are skipped. Returns
  /// the new ones. All processes must add the same.
  std::vector<at::Tensor> add(
      const std::vector<std::pair<std::string, at::Tensor>>& parameters);

  /// The gradients of `tensor`, which has been added, will be sparse, so that
  /// no bucket need have room for it. All processes must say so.
  void expect_sparse(const at::Tensor& tensor);

  /// From now on gradients that come from elsewhere than `backward` are noticed
  /// (`check_averaged`). Once they have been added and are known to be sparse or not.
  void watch();

  /// While it is set, gradients are those of this process, whoever computes them.
  void set_local(bool local) {
    local_ = local;
  }
  bool local() const {
    return local_;
  }

  /// Lets go of parameters that nobody else has.
  void prune();

  /// Whether a backward runs, which has called this.
  bool running() const {
    return inside_;
  }

  /// Calls `run`, which runs backward, and does what `plan` says. With
  /// `synchronize`, every process must call it.
  void backward(const BackwardPlan& plan, const std::function<void()>& run);

  const Parameters& parameters() const {
    return parameters_;
  }

  /// Whether the last backward that synchronised has met the other processes.
  bool met_others() const {
    return met_others_;
  }

  /// The gradients of `tensors` have been added to; the next backward that synchronises
  /// brings them together.
  void note_added(const std::vector<at::Tensor>& tensors);

  /// Throws where one of the tensors has a gradient that the others cannot
  /// have a part in.
  void check_averaged(
      const std::vector<at::Tensor>& tensors,
      const char* who = "the optimizer steps");

  /// An optimizer has stepped these: what was accumulated for them is used up.
  void note_step(const std::vector<at::Tensor>& tensors);

  /// Whether earlier micro-steps have accumulated something.
  bool holding() const {
    return parameters_.holding();
  }
  /// What they have accumulated for `tensor`, or its gradient; may be
  /// undefined.
  at::Tensor accumulated(const at::Tensor& tensor);

 private:
  friend class GradientHook;

  /// Where a parameter lies.
  struct Slot {
    static constexpr size_t kNoBucket = static_cast<size_t>(-1);

    Parameter* parameter = nullptr;
    size_t bucket = kNoBucket;
    size_t index = 0;
    at::TensorOptions options;
    /// Of the parameter when the bucket was made: `set_data` may give it others.
    c10::SmallVector<int64_t, 5> sizes;
    GradientHook* hook = nullptr;
  };

  bool distributed() const {
    return gradients_.size() > 1;
  }
  void on_gradient(const Slot& slot);
  bool up_to_date() const;
  void rebuild();
  void add_slot(Parameter* parameter, size_t bucket, size_t index);
  void remove_hooks();
  void begin(const BackwardPlan& plan);
  void launch_complete();
  void finish();
  void finish_sparse(const std::vector<SparseGradient>& gradients);
  void reject_foreign();
  /// Behind a backward that has failed on all processes alike: as if it had ended where it
  /// did. Throws where it is not so. Collective.
  void recover();

  Communicator& main_;
  Communicator& gradients_;
  ReducerOptions options_;
  Parameters parameters_;
  /// How many calls of `add` brought something new.
  int64_t groups_ = 0;

  std::vector<Bucket> buckets_;
  /// The parameters that are known to have sparse gradients.
  std::vector<Parameter*> sparse_;
  /// One for each parameter in a bucket or in `sparse_`; stable addresses.
  std::vector<std::unique_ptr<Slot>> slots_;
  /// A parameter has to move from the one to the other.
  bool layouts_changed_ = false;

  /// Hooks run on autograd's threads.
  std::mutex mutex_;
  bool local_ = false;
  /// A `backward` is under way; and what it runs, with several processes.
  bool inside_ = false;
  bool running_ = false;
  bool armed_ = false;
  bool ghost_ = false;
  /// The gradients that were there before the running backward have been set
  /// aside, so that what it adds is known.
  bool aside_ = false;
  /// Whether untouched buckets are left out, which costs one message more.
  bool selective_ = false;
  std::shared_ptr<Enclosed> enclosed_;
  bool failed_ = false;
  bool met_others_ = false;
  /// The next bucket to be sent.
  size_t next_ = 0;
};

} // namespace accel::detail
