#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tolerance.h"
#include "trace_reader.h"

namespace accel::verify {

/// A tensor of the original and its counterpart, which exists in both.
using TensorPair = std::pair<const TracedTensor*, const TracedTensor*>;

/// Where two runs part. In the order in which a step does things.
enum class EventKind {
  /// The parameters before a backward.
  kState,
  kLoss,
  kGradient,
  /// One run has no such backward.
  kCount,
  /// The values at the end.
  kFinalParameter,
  kFinalBuffer,
};

struct Event {
  EventKind kind;
  /// Number of the backward, from 0; the number of backwards for what is
  /// compared at the end.
  uint64_t step;
  /// "the gradient of Linear#1.weight [4, 2]: 0.31 apart (1e-09 allowed)".
  std::string what;
  /// Both runs are processes of the migrated program.
  bool between_processes = false;
  /// That process; the other one is process 0.
  int64_t rank = 0;
  /// At the end: no backward reached the parameter.
  bool unreached = false;
};

struct StepRow {
  double loss_original = 0;
  double loss_migrated = 0;
  /// Relative: of the loss, of the gradients (the worst one) and of the
  /// parameters before the step.
  double loss = 0;
  double gradient = 0;
  double state = 0;
  double allowed = 0;
};

struct TensorRow {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  /// The norm of its final value in the original.
  double size = 0;
  /// Relative differences: when first seen, of the gradients (the worst
  /// step), at the end; missing where there is nothing to compare.
  double initial = 0;
  std::optional<double> gradient;
  std::optional<double> final;
  /// The first step at which it, or its gradient, differs.
  std::optional<uint64_t> first_step;
  /// Its gradient is zero but for rounding, so that its value is left to
  /// chance and says nothing (a bias in front of a batch norm).
  bool undetermined = false;
  /// The same, because its value follows from this tensor's.
  std::string follows;
  /// Its gradient differs, and nothing steps on it: the program changes other
  /// parameters and never this one.
  bool unused_gradient = false;
  bool different = false;
};

struct TraceComparison {
  Dtype dtype = Dtype::kOther;
  Tolerance tolerance{0, 0, 0};
  std::vector<StepRow> steps;
  std::vector<TensorRow> tensors;
  std::vector<TensorPair> pairs;
  /// Where the runs part first; empty where they do not.
  std::optional<Event> first;
  /// Steps in which the original's loss or one of its parameters is NaN: there
  /// programs that differ look equal.
  std::vector<uint64_t> meaningless;
  uint64_t backwards_original = 0;
  uint64_t backwards_migrated = 0;
  /// What could not be compared.
  std::vector<std::string> notes;

  double largest_loss() const;
  double largest_gradient() const;
  double largest_final() const;
};

/// Compares what was recorded of the original with what was recorded of the
/// migrated program: process 0 with the original, and the others with process
/// 0. `migrated` is not empty; every backward of the original is compared.
///
/// The full final values are taken from the two safetensors files where both
/// exist, otherwise the fingerprints serve.
TraceComparison compare_traces(
    const Trace& original,
    const std::string& original_tensors,
    const std::vector<const Trace*>& migrated,
    const std::string& migrated_tensors,
    const ToleranceOptions& options);

/// Tensors that belong together: of one kind and sizes, and with equal first
/// values, or names, where there is a choice.
std::vector<TensorPair> pair_tensors(const Trace& original, const Trace& other);

} // namespace accel::verify
