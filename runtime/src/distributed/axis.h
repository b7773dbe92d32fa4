#pragma once

#include <accel/detail/communicator.h>
#include <accel/distributed/placement.h>

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <utility>

namespace accel::distributed {

/// One axis of a mesh: the processes along it, of which this is one, and what
/// carries tensors between them. Lives until the program ends, so that tensors
/// may hold plain pointers to it.
///
/// Belongs to the thread that has made it. Its collectives must come in the
/// same order on all processes, which two threads cannot promise.
class ACCEL_API Axis {
 public:
  /// `mesh` tells meshes apart; `index` is the place of the axis among the
  /// mesh's. Where tensors of two axes of one mesh meet, the one of the lower
  /// index is looked at first. `further`: how many axes the mesh has behind it.
  /// `line`: processes that stand elsewhere on the other axes have an axis of
  /// their own beside this one; of these lines this is the one of that number.
  Axis(
      accel::detail::Communicator* communicator,
      int64_t mesh,
      int64_t index,
      std::string name,
      int64_t further = 0,
      int64_t line = 0);

  int64_t rank() const {
    return rank_;
  }
  int64_t size() const {
    return size_;
  }
  int64_t mesh() const {
    return mesh_;
  }
  int64_t index() const {
    return index_;
  }
  int64_t further() const {
    return further_;
  }
  int64_t line() const {
    return line_;
  }
  const std::string& name() const {
    return name_;
  }
  /// Whether attention passes keys and values on around the axis instead of gathering
  /// them. The same on all processes.
  bool passes_keys_on() const {
    return passes_keys_on_;
  }
  void set_passes_keys_on(bool passes) {
    passes_keys_on_ = passes;
  }

  /// The first row and the end of a process's part of `n` rows, of a cut that has
  /// no blocks.
  std::pair<int64_t, int64_t> range(int64_t n, const Cut& cut, int64_t rank)
      const {
    if (cut) {
      TORCH_INTERNAL_ASSERT(
          cut->blocks == 1, "a rule took rows in blocks for a range");
      return {cut->points[rank], cut->points[rank + 1]};
    }
    const int64_t quotient = n / size_;
    const int64_t extra = n % size_;
    const int64_t begin = rank * quotient + (rank < extra ? rank : extra);
    return {begin, begin + quotient + (rank < extra ? 1 : 0)};
  }
  /// The same of this process.
  std::pair<int64_t, int64_t> range(int64_t n, const Cut& cut) const {
    return range(n, cut, rank_);
  }
  /// How many rows a process has, of any cut.
  int64_t rows(int64_t n, const Cut& cut, int64_t rank) const {
    if (cut) {
      return (cut->points[rank + 1] - cut->points[rank]) * cut->blocks;
    }
    const auto [begin, end] = range(n, cut, rank);
    return end - begin;
  }
  /// The rows of this process.
  int64_t rows(int64_t n, const Cut& cut) const {
    return rows(n, cut, rank_);
  }
  /// The cut with these points, null where it is the usual one.
  Cut cut_at(std::vector<int64_t> points, int64_t blocks = 1) const;

  /// What carries tensors. Throws where the Accelerator has ended, on another
  /// thread than the axis' (backward's threads may), and where not all processes
  /// are (`AloneGuard`); `operation` is named in the error.
  accel::detail::Communicator& communicator(const char* operation) const;

  /// Whether this is the thread that has made the axis.
  bool is_own_thread() const {
    return &in_this_thread == thread_;
  }

  /// Throws where this is another thread than the axis', unless backward runs
  /// on it.
  void check_thread(const char* operation) const {
    if (!is_own_thread()) {
      check_foreign_thread(operation);
    }
  }

  /// The Accelerator has ended: operations that communicate throw.
  void close() {
    communicator_ = nullptr;
  }

 private:
  void check_foreign_thread(const char* operation) const;

  accel::detail::Communicator* communicator_;
  int64_t mesh_;
  int64_t index_;
  int64_t further_;
  int64_t line_;
  std::string name_;
  int64_t rank_;
  int64_t size_;
  const char* thread_;
  bool passes_keys_on_ = false;
  /// Its address tells threads apart, and is found without a call. Not
  /// `thread_local`, which asks whether it has been initialised.
  static __thread char in_this_thread
      __attribute__((tls_model("initial-exec")));
};

} // namespace accel::distributed
