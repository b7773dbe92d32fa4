#pragma once

#include <accel/export.h>

#include <algorithm>
#include <cstdint>

namespace accel {

/// Which rows of the current global batch this process works on.
///
/// The global batch is what one device would see: `global` rows. It is split
/// into contiguous parts in rank order, as equal as they can be; the first ones
/// hold one row more. Every process can compute every other's part, so nothing
/// has to be exchanged.
///
/// Nobody works on a single row where others have more or none, because code
/// that was written for larger batches may not (torch::nn::BatchNorm1d refuses
/// to train on one row): of 7 rows, four processes get 3, 2, 2 and 0. Only a
/// batch of exactly one row for each process is split into single rows, and not
/// where a prepared model has a BatchNorm1d (`keeps_pairs`).
///
/// Where there are too few rows some processes have none. Code that was written
/// for one device divides by, reshapes or takes the maximum of what it gets, so
/// such a process is handed *ghost* rows (the first two of the batch) with
/// weight zero: `local` is 0, `rows()` is 2, or 1 in a batch of one. Losses,
/// gradients, metrics and batch statistics leave them out.
struct BatchShare {
  /// Rows of the global batch.
  int64_t global = 0;
  /// Global number of this process's first row.
  int64_t offset = 0;
  /// Rows of this process that count; 0 for a ghost.
  int64_t local = 0;

  /// The part of process `rank` of `world` in a batch of `global` rows.
  static BatchShare of(int64_t global, int64_t rank, int64_t world) {
    const int64_t parts = global == world && !keeps_pairs()
        ? world
        : std::clamp<int64_t>(global / 2, 1, world);
    if (rank >= parts || global == 0) {
      return {global, 0, 0};
    }
    const int64_t quotient = global / parts;
    const int64_t extra = global % parts;
    return {
        global,
        rank * quotient + std::min(rank, extra),
        quotient + (rank < extra ? 1 : 0)};
  }

  /// Whether batches of exactly one row for each process are split into pairs of
  /// rows, too, so that half of the processes are ghosts. `prepare` says so, on
  /// all processes alike, where a model could not train on single rows.
  static ACCEL_API bool keeps_pairs();
  static ACCEL_API void keep_pairs(bool keep);

  /// True where this process only keeps the others company.
  bool ghost() const {
    return local == 0;
  }

  /// Rows that this process's tensors really have: `local`, or those of a
  /// ghost.
  int64_t rows() const {
    return ghost() ? std::clamp<int64_t>(global, 1, 2) : local;
  }

  /// This process's part of a mean over the global batch, in [0, 1].
  double weight() const {
    return global == 0 ? 0.0 : static_cast<double>(local) / global;
  }
};

} // namespace accel
