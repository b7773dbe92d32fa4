#include "trace_compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "read_file.h"
#include "tensor_archive.h"

namespace accel::verify {
namespace {

/// Larger files are compared by their fingerprints.
constexpr std::uintmax_t kLargestFile = std::uintmax_t{1} << 30;
/// A gradient is taken for rounding where it is smaller than this many times
/// the rounding of all gradients together.
constexpr double kNoise = 30;
/// How much further than at the end a value that is left to chance may have been
/// apart in a step before.
constexpr double kStrays = 10;

double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::kDouble:
      return std::numeric_limits<double>::epsilon();
    case Dtype::kHalf:
      return 1e-3;
    case Dtype::kBFloat16:
      return 8e-3;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

/// |gradients| of one backward, all together.
double gradient_size(const TracedBackwardCall& call) {
  double squares = 0;
  for (const auto& [id, traced] : call.parameters) {
    if (traced.gradient && std::isfinite(traced.gradient->norm)) {
      squares += std::pow(traced.gradient->norm, 2);
    }
  }
  return std::sqrt(squares);
}

/// Gradients are left out: with loss scaling, some are and the step is skipped.
bool is_meaningless(const TracedBackwardCall& call) {
  return std::isnan(call.loss) ||
      std::any_of(
             call.parameters.begin(),
             call.parameters.end(),
             [](const auto& parameter) {
               return std::isnan(parameter.second.before.norm);
             });
}

/// Root mean square of all elements of the parameters.
double typical_element(const Trace& trace) {
  double squares = 0;
  double count = 0;
  for (const auto& tensor : trace.tensors) {
    if (tensor.kind == TensorKind::kParameter &&
        std::isfinite(tensor.initial.norm)) {
      squares += std::pow(tensor.initial.norm, 2);
      count += static_cast<double>(tensor.numel());
    }
  }
  return count == 0 ? 0 : std::sqrt(squares / count);
}

/// difference / size, in such a way that 0 / 0 is 0.
double ratio(double difference, double size) {
  return difference == 0 ? 0
      : size > 0         ? difference / size
                         : std::numeric_limits<double>::infinity();
}

/// Compares two traces, tensor by tensor and step by step.
class TraceComparer {
 public:
  TraceComparer(
      const Trace& a,
      const Trace& b,
      const ToleranceOptions& options,
      TraceComparison& result)
      : a_(a), b_(b), result_(result) {
    for (const auto& call : a.backwards) {
      result.dtype = call.dtype;
      break;
    }
    result.tolerance = tolerance_for(result.dtype, options);
    result.pairs = pair_tensors(a, b);
    typical_ = typical_element(a);
    for (size_t i = 0; i < result.pairs.size(); ++i) {
      row_of_[result.pairs[i].first->id] = i;
      TensorRow row;
      const auto& [mine, other] = result.pairs[i];
      row.name = mine->describe();
      row.kind = mine->kind;
      row.size = mine->final.value_or(mine->initial).norm;
      row.initial =
          ratio(distance(mine->initial, other->initial), scale(*mine));
      result.tensors.push_back(row);
    }
    mark_undetermined();
    find_untouched();
  }

  void compare_steps() {
    const size_t count =
        std::min(a_.backwards.size(), b_.backwards.size());
    double largest_loss = 0;
    const auto has = [&](bool negative) {
      return std::any_of(
          a_.backwards.begin(), a_.backwards.end(), [&](const auto& call) {
            return negative ? call.loss < 0 : call.loss > 0;
          });
    };
    takes_both_signs_ = has(true) && has(false);
    for (size_t step = 0; step < count; ++step) {
      const auto& mine = a_.backwards[step];
      const auto& other = b_.backwards[step];
      StepRow row;
      row.allowed = result_.tolerance.at(step);
      row.loss_original = mine.loss;
      row.loss_migrated = other.loss;
      for (const double loss : {mine.loss, other.loss}) {
        if (std::isfinite(loss)) {
          largest_loss = std::max(largest_loss, std::abs(loss));
        }
      }
      if (is_meaningless(mine)) {
        result_.meaningless.push_back(step);
      }
      compare_state(step, mine, other, row);
      compare_loss(step, largest_loss, row);
      compare_gradients(step, mine, other, row);
      result_.steps.push_back(row);
    }
    if (a_.backwards.size() != b_.backwards.size()) {
      report(
          EventKind::kCount,
          count,
          std::to_string(a_.backwards.size()) +
              " backward calls in the original, " +
              std::to_string(b_.backwards.size()) +
              " in the migrated program");
    }
    if (result_.pairs.size() != a_.tensors.size() ||
        result_.pairs.size() != b_.tensors.size()) {
      report_unpaired(count);
    }
  }

  void compare_final(
      const std::string& a_tensors, const std::string& b_tensors) {
    const auto a_values = load(a_tensors);
    const auto b_values = load(b_tensors);
    const uint64_t end = a_.backwards.size();
    const double allowed = result_.tolerance.at(end);
    std::vector<std::optional<double>> differences(result_.pairs.size());
    for (size_t i = 0; i < result_.pairs.size(); ++i) {
      const auto& [mine, other] = result_.pairs[i];
      const auto a_value = a_values.find(std::to_string(mine->id));
      const auto b_value = b_values.find(std::to_string(other->id));
      if (a_value != a_values.end() && b_value != b_values.end() &&
          a_value->second.values.size() == b_value->second.values.size()) {
        differences[i] = apart(a_value->second.values, b_value->second.values);
      } else if (mine->final && other->final) {
        differences[i] = distance(*mine->final, *other->final);
      }
    }
    for (size_t i = 0; i < result_.pairs.size(); ++i) {
      const auto* mine = result_.pairs[i].first;
      auto& row = result_.tensors[i];
      if (!differences[i]) {
        continue;
      }
      const double size = std::max(scale(*mine), floor_of(*mine));
      row.final = ratio(*differences[i], size);
      if (!(*row.final <= allowed) && !row.undetermined &&
          !follows_chance(i, differences)) {
        row.different = true;
        if (!row.first_step) {
          row.first_step = end;
        }
        report(
            row.kind == TensorKind::kBuffer ? EventKind::kFinalBuffer
                                            : EventKind::kFinalParameter,
            end,
            "the final value of " + row.name + ": " +
                apart_text(*row.final, allowed),
            /*unreached=*/times_reached(a_, *mine) == 0);
      }
    }
  }

 private:
  /// A batch norm takes the bias of the layer in front of it out again, but for
  /// its running mean, an average of means with the bias in them: where that is
  /// left to chance, so is the running mean, by no more than the bias has gone
  /// astray in some step.
  bool follows_chance(
      size_t i, const std::vector<std::optional<double>>& differences) {
    const std::string ending = "running_mean";
    const auto& name = result_.pairs[i].first->name;
    auto& row = result_.tensors[i];
    if (row.kind != TensorKind::kBuffer || name.size() < ending.size() ||
        name.compare(name.size() - ending.size(), ending.size(), ending) != 0) {
      return false;
    }
    for (size_t j = 0; j < result_.pairs.size(); ++j) {
      const auto& bias = result_.tensors[j];
      if (bias.kind == TensorKind::kParameter && bias.undetermined &&
          differences[j] &&
          *differences[i] <= kStrays * *differences[j] &&
          result_.pairs[j].first->numel() == result_.pairs[i].first->numel()) {
        row.undetermined = true;
        row.follows = bias.name;
        return true;
      }
    }
    return false;
  }

  void compare_state(
      size_t step,
      const TracedBackwardCall& mine,
      const TracedBackwardCall& other,
      StepRow& row) {
    for_pairs(mine, other, [&](size_t i, const auto& a, const auto& b) {
      const auto& tensor = *result_.pairs[i].first;
      auto& summary = result_.tensors[i];
      const double size =
          std::max(a.before.norm, floor_of(tensor));
      const double difference = ratio(distance(a.before, b.before), size);
      if (summary.undetermined) {
        return;
      }
      row.state = std::max(row.state, difference);
      if (!(difference <= row.allowed)) {
        mark(summary, step);
        report(
            EventKind::kState,
            step,
            summary.name + " before the step: " +
                apart_text(difference, row.allowed));
      }
    });
  }

  /// The part of the largest loss that differences are measured by at least. In single
  /// precision a cross entropy of nearly nothing is made of logits that are not small.
  double loss_floor() const {
    return result_.dtype == Dtype::kDouble ? 1e-3 : 1e-2;
  }

  void compare_loss(size_t step, double largest, StepRow& row) {
    const double size = std::max(
        {std::abs(row.loss_original),
         std::abs(row.loss_migrated),
         (takes_both_signs_ ? kFloor : loss_floor()) * largest});
    row.loss = ratio(
        distance(row.loss_original, row.loss_migrated),
        std::isfinite(size) ? size : 1);
    if (!(row.loss <= row.allowed)) {
      report(
          EventKind::kLoss,
          step,
          "the loss: " + apart_text(row.loss, row.allowed));
    }
  }

  void compare_gradients(
      size_t step,
      const TracedBackwardCall& mine,
      const TracedBackwardCall& other,
      StepRow& row) {
    const double all = gradient_size(mine);
    for_pairs(mine, other, [&](size_t i, const auto& a, const auto& b) {
      auto& summary = result_.tensors[i];
      const bool untouched = untouched_.count(i) != 0;
      if (!a.gradient || !b.gradient) {
        if (untouched) {
          return;
        }
        // Micro-steps of an accumulation are not averaged.
        if ((mine.flags & other.flags & kAveraged) != 0 &&
            a.gradient.has_value() != b.gradient.has_value()) {
          mark(summary, step);
          report(
              EventKind::kGradient,
              step,
              "only one of the programs has a gradient of " + summary.name);
        }
        return;
      }
      const double size = std::max(
          std::isfinite(a.gradient->norm) ? a.gradient->norm : 0,
          kFloor * all);
      const double difference = ratio(distance(*a.gradient, *b.gradient), size);
      if (untouched) {
        summary.unused_gradient |= !(difference <= row.allowed);
        return;
      }
      row.gradient = std::max(row.gradient, difference);
      summary.gradient = std::max(summary.gradient.value_or(0), difference);
      if (!(difference <= row.allowed)) {
        mark(summary, step);
        report(
            EventKind::kGradient,
            step,
            "the gradient of " + summary.name + ": " +
                apart_text(difference, row.allowed));
      }
    });
  }

  /// Calls `visit(row, mine, other)` for the parameters that both backwards
  /// reached, in the order of the original.
  template <typename Visit>
  void for_pairs(
      const TracedBackwardCall& mine,
      const TracedBackwardCall& other,
      const Visit& visit) {
    for (const auto& [id, traced] : mine.parameters) {
      const auto row = row_of_.find(id);
      if (row == row_of_.end()) {
        continue;
      }
      const auto found =
          other.parameters.find(result_.pairs[row->second].second->id);
      if (found != other.parameters.end()) {
        visit(row->second, traced, found->second);
      }
    }
  }

  void mark_undetermined() {
    std::map<uint32_t, double> largest;
    for (const auto& call : a_.backwards) {
      const double all = gradient_size(call);
      for (const auto& [id, traced] : call.parameters) {
        if (traced.gradient) {
          largest[id] =
              std::max(largest[id], ratio(traced.gradient->norm, all));
        }
      }
    }
    for (const auto& [id, share] : largest) {
      const auto row = row_of_.find(id);
      if (row != row_of_.end()) {
        result_.tensors[row->second].undetermined =
            share > 0 && share <= kNoise * epsilon(result_.dtype);
      }
    }
  }

  /// Parameters that keep their values while others are trained: no optimizer
  /// has them. Their gradients are averaged by nobody, and used by nobody: what
  /// a program prints of them is compared as text.
  void find_untouched() {
    bool trained = false;
    for (size_t i = 0; i < result_.pairs.size(); ++i) {
      const auto& tensor = *result_.pairs[i].first;
      if (tensor.kind != TensorKind::kParameter || !tensor.final) {
        continue;
      }
      if (distance(*tensor.final, tensor.initial) == 0) {
        untouched_.insert(i);
      } else {
        trained = true;
      }
    }
    if (!trained) {
      untouched_.clear();
    }
  }

  void report_unpaired(uint64_t step) {
    std::set<const TracedTensor*> paired;
    for (const auto& [mine, other] : result_.pairs) {
      paired.insert(mine);
      paired.insert(other);
    }
    for (const Trace* trace : {&a_, &b_}) {
      for (const auto& tensor : trace->tensors) {
        if (paired.count(&tensor) != 0) {
          continue;
        }
        const std::string who =
            trace == &a_ ? "original" : "migrated program";
        if (!tensor.name.empty()) {
          report(
              EventKind::kCount,
              step,
              "only the " + who + " has " + tensor.describe());
        } else if (times_reached(*trace, tensor) > 1) {
          // No intermediate value of one batch.
          result_.notes.push_back(
              tensor.describe() + " of the " + who +
              ", which no module has registered, has no counterpart of its "
              "size and was not compared");
        }
      }
    }
  }

  static size_t times_reached(const Trace& trace, const TracedTensor& tensor) {
    size_t times = 0;
    for (const auto& call : trace.backwards) {
      times += call.parameters.count(tensor.id);
    }
    return times;
  }

  void mark(TensorRow& row, uint64_t step) {
    row.different = true;
    if (!row.first_step) {
      row.first_step = step;
    }
  }

  void report(
      EventKind kind,
      uint64_t step,
      const std::string& what,
      bool unreached = false) {
    if (!result_.first || step < result_.first->step ||
        (step == result_.first->step && kind < result_.first->kind)) {
      result_.first = Event{kind, step, what};
      result_.first->unreached = unreached;
    }
  }

  static double scale(const TracedTensor& tensor) {
    return tensor.final.value_or(tensor.initial).norm;
  }

  double floor_of(const TracedTensor& tensor) const {
    return kFloor * typical_ *
        std::sqrt(static_cast<double>(tensor.numel()));
  }

  static double apart(
      const std::vector<double>& a, const std::vector<double>& b) {
    double squares = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      squares += std::pow(distance(a[i], b[i]), 2);
    }
    return std::sqrt(squares);
  }

  static std::string apart_text(double difference, double allowed) {
    return short_number(difference) + " apart (" + short_number(allowed) +
        " allowed)";
  }

  static StoredTensors load(const std::string& path) {
    std::error_code none;
    const auto size = std::filesystem::file_size(path, none);
    if (none || size > kLargestFile) {
      return {};
    }
    return read_safetensors(read_file(path)).value_or(StoredTensors());
  }

  const Trace& a_;
  const Trace& b_;
  TraceComparison& result_;
  double typical_ = 0;
  /// The loss is one of terms that cancel: a log likelihood, a policy's.
  bool takes_both_signs_ = false;
  /// Rows by the id of the original's tensor.
  std::map<uint32_t, size_t> row_of_;
  /// Rows, see `find_untouched`.
  std::set<size_t> untouched_;
};

} // namespace

double TraceComparison::largest_loss() const {
  double largest = 0;
  for (const auto& step : steps) {
    largest = std::max(largest, step.loss);
  }
  return largest;
}

double TraceComparison::largest_gradient() const {
  double largest = 0;
  for (const auto& step : steps) {
    largest = std::max(largest, step.gradient);
  }
  return largest;
}

double TraceComparison::largest_final() const {
  double largest = 0;
  for (const auto& tensor : tensors) {
    if (!tensor.undetermined) {
      largest = std::max(largest, tensor.final.value_or(0));
    }
  }
  return largest;
}

std::vector<TensorPair> pair_tensors(
    const Trace& original, const Trace& other) {
  std::vector<TensorPair> pairs;
  std::set<const TracedTensor*> taken;
  std::map<const TracedTensor*, const TracedTensor*> partner;
  // The first that is found after: everything is equal; the values are, and
  // are no zeros; the names are; only kind and sizes are.
  struct Needs {
    bool name;
    bool value;
  };
  for (const Needs needs :
       {Needs{true, true}, {false, true}, {true, false}, {false, false}}) {
    for (const auto& mine : original.tensors) {
      if (partner.count(&mine) != 0 ||
          (needs.value && !needs.name && mine.initial.norm == 0)) {
        continue;
      }
      for (const auto& candidate : other.tensors) {
        if (taken.count(&candidate) == 0 && candidate.kind == mine.kind &&
            candidate.sizes == mine.sizes &&
            (!needs.name || candidate.name == mine.name) &&
            (!needs.value ||
             distance(candidate.initial, mine.initial) == 0)) {
          partner[&mine] = &candidate;
          taken.insert(&candidate);
          break;
        }
      }
    }
  }
  for (const auto& mine : original.tensors) {
    const auto found = partner.find(&mine);
    if (found != partner.end()) {
      pairs.emplace_back(&mine, found->second);
    }
  }
  return pairs;
}

TraceComparison compare_traces(
    const Trace& original,
    const std::string& original_tensors,
    const std::vector<const Trace*>& migrated,
    const std::string& migrated_tensors,
    const ToleranceOptions& options) {
  TraceComparison result;
  TraceComparer comparer(original, *migrated.at(0), options, result);
  comparer.compare_steps();
  comparer.compare_final(original_tensors, migrated_tensors);
  result.backwards_original = original.backwards.size();
  result.backwards_migrated = migrated.at(0)->backwards.size();
  for (size_t rank = 1; rank < migrated.size(); ++rank) {
    TraceComparison between;
    TraceComparer processes(*migrated[0], *migrated[rank], options, between);
    processes.compare_steps();
    processes.compare_final("", "");
    // At the same point this says more: the processes do not even agree among
    // themselves.
    if (between.first &&
        (!result.first || between.first->step < result.first->step ||
         (between.first->step == result.first->step &&
          between.first->kind <= result.first->kind))) {
      result.first = between.first;
      result.first->between_processes = true;
      result.first->rank = static_cast<int64_t>(rank);
    }
  }
  return result;
}

} // namespace accel::verify
