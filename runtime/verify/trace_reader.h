#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace_format.h"

namespace accel::verify {

/// A tensor that a process recorded.
struct TracedTensor {
  uint32_t id = 0;
  TensorKind kind = TensorKind::kParameter;
  Dtype dtype = Dtype::kOther;
  /// "Linear#2.weight": the second Linear that was made; empty for a tensor
  /// that no module registered.
  std::string name;
  std::vector<int64_t> sizes;
  /// When it was first seen.
  Fingerprint initial;
  /// When the program ended; missing where it was killed.
  std::optional<Fingerprint> final;

  int64_t numel() const;
  /// "Linear#2.weight [64, 32]".
  std::string describe() const;
};

/// What one backward did with one parameter.
struct TracedGradient {
  /// The parameter (a sample of it) before the backward.
  Fingerprint before;
  /// Missing where there was none, or where it is not comparable.
  std::optional<Fingerprint> gradient;
};

struct TracedBackwardCall {
  double loss = 0;
  Dtype dtype = Dtype::kOther;
  uint32_t flags = 0;
  /// Of the global batch; 0 where not known.
  int64_t rows = 0;
  /// By the parameter's id.
  std::map<uint32_t, TracedGradient> parameters;
};

/// All that one process recorded.
struct Trace {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// In the order in which they were seen.
  std::vector<TracedTensor> tensors;
  std::vector<TracedBackwardCall> backwards;
  std::vector<std::string> notes;
  /// False where the process was killed.
  bool complete = false;

  const TracedTensor* find(uint32_t id) const;
};

/// Throws std::runtime_error where `path` cannot be read or is no trace.
Trace read_trace(const std::string& path);

} // namespace accel::verify
