#pragma once

#include <cstdint>

namespace accel {

/// Which rows of the current global batch this process works on.
///
/// The global batch is what one device would see: `global` rows. It is split
/// into contiguous parts in rank order; the first `global % world` processes
/// hold one row more (Accelerate's `split_between_processes`). Every process
/// can compute every other's part, so nothing has to be exchanged.
///
/// When there are fewer rows than processes some processes have none. Code
/// that was written for one device divides by, reshapes or takes the maximum
/// of what it gets, so such a process is handed one *ghost* row (row 0 of the
/// batch) with weight zero: `local` is 0, `rows()` is 1. Losses, gradients,
/// metrics and batch statistics leave it out.
struct BatchShare {
  /// Rows of the global batch.
  int64_t global = 0;
  /// Global number of this process's first row.
  int64_t offset = 0;
  /// Rows of this process that count; 0 for a ghost.
  int64_t local = 0;

  /// The part of process `rank` of `world` in a batch of `global` rows.
  static BatchShare of(int64_t global, int64_t rank, int64_t world) {
    const int64_t quotient = global / world;
    const int64_t extra = global % world;
    const int64_t local = quotient + (rank < extra ? 1 : 0);
    const int64_t offset =
        rank * quotient + (rank < extra ? rank : extra);
    return {global, local == 0 ? 0 : offset, local};
  }

  /// True where this process only keeps the others company.
  bool ghost() const {
    return local == 0;
  }

  /// Rows that this process's tensors really have: `local`, or 1 for a ghost.
  int64_t rows() const {
    return ghost() ? 1 : local;
  }

  /// This process's part of a mean over the global batch, in [0, 1].
  double weight() const {
    return global == 0 ? 0.0 : static_cast<double>(local) / global;
  }
};

} // namespace accel
