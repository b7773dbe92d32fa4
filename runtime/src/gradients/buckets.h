#pragma once

#include <accel/detail/communicator.h>

#include "gradients/parameters.h"
#include "gradients/sparse.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace accel::detail {

/// A flat buffer in which the gradients of some parameters of one dtype lie
/// side by side, so that one all-reduce averages them all.
///
/// `grad()` of a parameter becomes a tensor over its part of the buffer. That
/// tensor is an ordinary one with a storage of its own kind, not an autograd
/// view: `zero_grad`, `detach_`, `zero_` and `reset` do what they always do.
///
/// Behind the gradients there is one element per parameter that tells whether
/// this process's backward has reached it; the sum tells whether any has. It is
/// infinite, and so is the sum, where this process's gradient is sparse: that
/// one does not travel with the bucket.
class Bucket {
 public:
  /// All of one dtype and device. `plain_is_whole`: see ReducerOptions.
  Bucket(std::vector<Parameter*> parameters, bool plain_is_whole);

  const std::vector<Parameter*>& parameters() const {
    return parameters_;
  }

  /// Before a backward: counts what is to be waited for. Takes a new buffer
  /// where somebody still holds a gradient that was cleared meanwhile, as they
  /// expect it to stay what it was.
  void arm();

  /// The backward has reached the parameter: its gradient goes into the
  /// buffer, unless it is sparse. Returns true when it was the last that was missing.
  bool receive(size_t index, int64_t rank, int64_t processes);

  bool complete() const {
    return pending_ == 0;
  }
  bool in_flight() const {
    return waiter_ != nullptr;
  }
  bool launched() const {
    return launched_;
  }
  /// Whether it had to be summed: some gradient is a part.
  bool in_parts() const {
    return in_parts_;
  }
  /// Whether this process has added to any of the gradients.
  bool touched() const;

  /// Fills in what the backward has not reached and starts the all-reduce, in
  /// the type `compression` where there is one that is smaller. Sends nothing
  /// where all gradients are whole.
  void launch(
      Communicator& communicator,
      std::optional<at::ScalarType> compression);

  /// Waits; divides by the number of processes, unless plain gradients are
  /// whole; attaches the gradients that
  /// any process has added to. The others stay as they were. Those that are
  /// sparse on any process stay as they are, too, and are added to `sparse`.
  void finish(Communicator& communicator, std::vector<SparseGradient>& sparse);

  /// The backward has failed while it was on its way: what arrives is nobody's gradient
  /// any more. Those of its parameters are not numbers until the program zeroes them.
  void spoil();
  /// Waits for what `spoil` has left on its way.
  void abandon();

 private:
  void allocate();
  bool attached(size_t index) const;
  void put(size_t index, const at::Tensor& gradient, int64_t rank);

  std::vector<Parameter*> parameters_;
  bool plain_is_whole_;
  /// Where plain gradients are whole: which of them are, and whether others are
  /// parts of sums, so that the buffers must be summed.
  std::vector<bool> whole_;
  bool in_parts_ = false;
  at::Tensor flat_;
  /// What travels: `flat_`, of complex numbers as real ones.
  at::Tensor sent_;
  /// The part of `flat_` behind the gradients.
  at::Tensor flags_;
  std::vector<at::Tensor> views_;
  int64_t pending_ = 0;
  bool launched_ = false;
  /// What travels instead, where it is of another type.
  at::Tensor compressed_;
  Communicator::Waiter waiter_;
};

/// Groups parameters into buckets, the last ones first, since backward reaches
/// these first. `capacity` in bytes; the first bucket is small, so that the
/// first all-reduce starts early.
std::vector<Bucket> make_buckets(
    const std::vector<Parameter*>& parameters,
    int64_t first_capacity,
    int64_t capacity,
    bool plain_is_whole);

} // namespace accel::detail
