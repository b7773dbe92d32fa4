//===- Placement.h - Where a value's batch dimension lives ------*- C++ -*-===//
//
// When the batch of one device is split between N processes, each value of the
// loop body becomes one of these. The analysis proves which; what it cannot
// prove is `Unknown`, and an unknown value that matters stops the migration.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_PLACEMENT_H
#define ACCEL_MIGRATE_PLACEMENT_H

namespace accel::migrate {

enum class Placement {
  /// The same on all processes, and what one device would have: parameters,
  /// constants, numbers read from replicated values.
  Replicated,
  /// A tensor whose dimension 0 is this process's part of the batch.
  Rows,
  /// A mean over the samples of this process's part. The mean over all is the
  /// mean of these, weighted by the processes' numbers of samples.
  MeanOfRows,
  /// A sum over the samples of this process's part.
  SumOfRows,
  /// A host number (or a shape) made from the size of this process's part.
  LocalSize,
  /// A host value that differs between processes: clocks, random devices.
  PerProcess,
  /// Not one of these, or not known to be.
  Unknown,
};

inline const char *placementName(Placement P) {
  switch (P) {
  case Placement::Replicated:
    return "replicated";
  case Placement::Rows:
    return "rows";
  case Placement::MeanOfRows:
    return "mean of rows";
  case Placement::SumOfRows:
    return "sum of rows";
  case Placement::LocalSize:
    return "local size";
  case Placement::PerProcess:
    return "per process";
  case Placement::Unknown:
    return "unknown";
  }
  return "unknown";
}

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_PLACEMENT_H
