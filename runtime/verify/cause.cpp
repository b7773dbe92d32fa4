#include "cause.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

namespace accel::verify {
namespace {

/// A factor that is as near to 1 is none.
constexpr double kNoFactor = 1e-3;

std::string factor_text(double factor) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", factor);
  return text;
}

Fingerprint minus(const Fingerprint& a, const Fingerprint& b) {
  // Norms are not linear; the projections are.
  return {
      0,
      {a.projection[0] - b.projection[0], a.projection[1] - b.projection[1]}};
}

/// The number f with b = f a for all pairs, where there is one.
std::optional<double> common_factor(
    const std::vector<std::pair<Fingerprint, Fingerprint>>& pairs,
    double tolerance) {
  double products = 0;
  double squares = 0;
  for (const auto& [a, b] : pairs) {
    for (int i = 0; i < 2; ++i) {
      products += a.projection[i] * b.projection[i];
      squares += a.projection[i] * a.projection[i];
    }
  }
  if (!(squares > 0)) {
    return std::nullopt;
  }
  const double factor = products / squares;
  double rest = 0;
  for (const auto& [a, b] : pairs) {
    for (int i = 0; i < 2; ++i) {
      rest += std::pow(b.projection[i] - factor * a.projection[i], 2);
    }
  }
  const double size = std::sqrt(squares) * std::max(1.0, std::abs(factor));
  return std::sqrt(rest) <= tolerance * size ? std::optional<double>(factor)
                                             : std::nullopt;
}

/// Everything that the causes are read from.
class Investigation {
 public:
  Investigation(
      const Trace& original,
      const Trace& migrated,
      const TraceComparison& comparison,
      int processes)
      : original_(original),
        migrated_(migrated),
        comparison_(comparison),
        event_(*comparison.first),
        processes_(processes),
        tolerance_(std::max(1e-6, 10 * comparison.tolerance.at(event_.step))) {}

  Cause find() const {
    if (event_.between_processes) {
      return between_processes();
    }
    if (const auto cause = counts(); !cause.text.empty()) {
      return cause;
    }
    if (const auto cause = rounding(); !cause.text.empty()) {
      return cause;
    }
    if (const auto cause = precision(); !cause.text.empty()) {
      return cause;
    }
    switch (event_.kind) {
      case EventKind::kState:
        return event_.step == 0 ? initial() : update();
      case EventKind::kLoss:
        return loss();
      case EventKind::kGradient:
        return gradient();
      case EventKind::kFinalBuffer:
        return {
            "only buffers differ: statistics that a module keeps (batch norm) "
            "were taken from one process's part of the batch",
            "buffers"};
      case EventKind::kFinalParameter:
        return event_.unreached ? unreached() : update();
      case EventKind::kCount:
        return {};
    }
    return {};
  }

 private:
  Cause between_processes() const {
    const std::string rank = std::to_string(event_.rank);
    if (event_.kind == EventKind::kState && event_.step == 0) {
      return {
          "process " + rank +
              " starts from other parameters than process 0: they were not "
              "broadcast (accelerator.prepare(model, optimizer)), or it has "
              "another seed",
          "initial-parameters"};
    }
    if (event_.kind == EventKind::kGradient) {
      return {
          "the gradients of process " + rank +
              " are not those of process 0: they were not averaged",
          "not-averaged"};
    }
    if (event_.kind == EventKind::kFinalBuffer) {
      return {
          "the buffers of process " + rank +
              " are not those of process 0: statistics of one process's part "
              "of the batch",
          "buffers"};
    }
    if (event_.unreached) {
      return unreached();
    }
    if (event_.kind == EventKind::kState ||
        event_.kind == EventKind::kFinalParameter) {
      return {
          "process " + rank +
              " made another update than process 0 from the same gradients",
          "update"};
    }
    return {"process " + rank + " does not do what process 0 does", ""};
  }

  Cause counts() const {
    const auto a = static_cast<double>(comparison_.backwards_original);
    const auto b = static_cast<double>(comparison_.backwards_migrated);
    if (a == b || event_.step == 0) {
      return {};
    }
    if (event_.kind == EventKind::kCount && b < a) {
      return {"the migrated program stops early", "count"};
    }
    return {
        "the programs do not call backward equally often (" + factor_text(a) +
            " and " + factor_text(b) + " times): from here on they are not at "
            "the same point",
        "count"};
  }

  /// Did the difference come out of rounding, little by little?
  Cause rounding() const {
    if (comparison_.dtype == Dtype::kDouble || event_.step < 20 ||
        event_.step >= comparison_.steps.size()) {
      return {};
    }
    const auto worst = [&](uint64_t step) {
      const auto& row = comparison_.steps[step];
      return std::max({row.loss, row.gradient, row.state}) / row.allowed;
    };
    if (worst(event_.step - 1) > 0.2 && worst(event_.step - 10) > 0.02) {
      return {
          "the difference grew step by step from the size of rounding; "
          "accel verify --double tells rounding from errors",
          "rounding"};
    }
    return {};
  }

  /// In float64, is the difference of the size of float32's rounding?
  Cause precision() const {
    if (comparison_.dtype != Dtype::kDouble ||
        event_.step >= comparison_.steps.size()) {
      return {};
    }
    const auto& row = comparison_.steps[event_.step];
    const double difference = std::max({row.loss, row.gradient, row.state});
    // Rounding of one number, up to that of a long sum of them.
    if (difference > 1e-6) {
      return {};
    }
    return {
        "the difference is of the size of float32's rounding: something is "
        "computed in float32 in one of the programs, or the model makes "
        "rounding much larger (then the original with another number of "
        "threads differs from itself as much)",
        "precision"};
  }

  static Cause unreached() {
    return {
        "this is a parameter that no backward reaches, such as a moving "
        "average of the model or a target network: it is updated on some "
        "processes only, or at other times",
        "update"};
  }

  Cause initial() const {
    return {
        "the parameters differ before anything was computed: another seed, or "
        "random numbers are drawn in another order before the model is made",
        "initial-parameters"};
  }

  Cause loss() const {
    const auto& row = comparison_.steps[event_.step];
    const double factor = row.loss_migrated / row.loss_original;
    if (is(factor, processes_)) {
      return {
          "the loss is the number of processes times the original's: a sum "
          "is taken for a mean",
          "factor"};
    }
    if (is(factor, 1.0 / processes_)) {
      return {
          "the loss is the original's divided by the number of processes",
          "factor"};
    }
    if (short_batch()) {
      return short_batch_cause();
    }
    return {
        "parameters are equal and the loss is not: this batch holds other "
        "samples or is in another order, random numbers in the loop (dropout, "
        "noise) differ, or a module is in evaluation mode in one of the "
        "programs",
        "data-order"};
  }

  Cause gradient() const {
    const auto factor = common_factor(gradient_pairs(event_.step), tolerance_);
    if (short_batch()) {
      return short_batch_cause();
    }
    if (factor && is(*factor, processes_)) {
      return {
          "all gradients are " + factor_text(processes_) +
              " times the original's, the number of processes: a sum is taken "
              "for a mean",
          "factor"};
    }
    if (factor && is(*factor, 1.0 / processes_)) {
      return {
          "all gradients are the original's divided by the number of "
          "processes: a mean is taken twice, or a sum divided",
          "factor"};
    }
    if (factor && std::abs(*factor - 1) < kNoFactor) {
      return {
          "the gradients point where the original's do and are as large: "
          "rounding, which this model makes larger than others do; accel verify "
          "--double tells rounding from errors",
          "rounding"};
    }
    if (factor) {
      return {
          "all gradients are " + factor_text(*factor) + " times the original's",
          "factor"};
    }
    if (keeps_earlier_gradients()) {
      return {
          "what backward " + std::to_string(event_.step - 1) +
              " left in the gradients was added to: zero_grad() is missing",
          "gradients"};
    }
    return {
        "the loss is equal and its gradients are not: something acts on each "
        "process's gradients before they are averaged (clipping, scaling), or "
        "they are weighted wrongly",
        "gradients"};
  }

  /// The last gradients agree; what came of them does not.
  Cause update() const {
    const uint64_t step = event_.step;
    if (const std::string name = not_reached(step - 1); !name.empty()) {
      return {
          "backward " + std::to_string(step - 1) + " of the migrated program "
          "does not reach " + name + ", which is part of the original's graph",
          "gradients"};
    }
    const auto pairs = updates_before(step);
    double size_a = 0;
    double size_b = 0;
    for (const auto& [a, b] : pairs) {
      size_a += std::abs(a.projection[0]) + std::abs(a.projection[1]);
      size_b += std::abs(b.projection[0]) + std::abs(b.projection[1]);
    }
    const std::string after =
        "after backward " + std::to_string(step - 1) + ", whose gradients "
        "are equal, ";
    if (pairs.empty()) {
      return {after + "the last update differs", "update"};
    }
    if (size_a > 0 && size_b == 0) {
      return {
          after + "the migrated program does not update its parameters: "
                  "optimizer.step() was skipped",
          "update"};
    }
    if (size_a == 0 && size_b > 0) {
      return {
          after + "only the migrated program updates its parameters", "update"};
    }
    const auto factor = common_factor(pairs, tolerance_);
    if (factor) {
      return {
          after + "the update is " + factor_text(*factor) +
              " times the original's: the learning rate (a scheduler that is "
              "stepped too often or too seldom), or clipping",
          "update"};
    }
    if (const std::string name = not_updated(); !name.empty()) {
      return {
          after + "the migrated program does not update " + name +
              ", which is not among its optimizer's parameters",
          "update"};
    }
    return {
        after + "the updates differ: clipping, the optimizer's options or "
                "its step",
        "update"};
  }

  /// A tensor that only the original's backward `step` reached.
  std::string not_reached(uint64_t step) const {
    const auto& a = original_.backwards[step].parameters;
    const auto& b = migrated_.backwards[step].parameters;
    for (const auto& [mine, other] : comparison_.pairs) {
      if (a.count(mine->id) != 0 && b.count(other->id) == 0) {
        return mine->describe();
      }
    }
    return "";
  }

  /// The batch of the first difference has fewer rows than usual.
  bool short_batch() const {
    std::map<int64_t, int> times;
    for (const auto& call : migrated_.backwards) {
      ++times[call.rows];
    }
    int64_t usual = 0;
    int most = 0;
    for (const auto& [rows, count] : times) {
      if (count > most) {
        usual = rows;
        most = count;
      }
    }
    const int64_t rows = migrated_.backwards[event_.step].rows;
    return event_.step > 0 && rows > 0 && rows < usual;
  }

  Cause short_batch_cause() const {
    return {
        "it is the first batch with fewer rows (" +
            std::to_string(migrated_.backwards[event_.step].rows) +
            "), the last one of an epoch: the processes' unequal parts are "
            "not weighted by their rows",
        "short-batch"};
  }

  /// The difference is a multiple (they may have been clipped since) of the
  /// gradients of the backward before.
  bool keeps_earlier_gradients() const {
    if (event_.step == 0) {
      return false;
    }
    const auto now = gradient_pairs(event_.step);
    const auto earlier = gradient_pairs(event_.step - 1);
    if (now.size() != earlier.size()) {
      return false;
    }
    std::vector<std::pair<Fingerprint, Fingerprint>> pairs;
    for (size_t i = 0; i < now.size(); ++i) {
      pairs.emplace_back(
          earlier[i].second, minus(now[i].second, now[i].first));
    }
    const auto factor = common_factor(pairs, tolerance_);
    return factor && *factor > 1e-3;
  }

  bool is(double value, double expected) const {
    return processes_ > 1 &&
        std::abs(value - expected) <= tolerance_ * std::abs(expected);
  }

  std::vector<std::pair<Fingerprint, Fingerprint>> gradient_pairs(
      uint64_t step) const {
    std::vector<std::pair<Fingerprint, Fingerprint>> pairs;
    for_pairs(step, [&](const auto& a, const auto& b) {
      if (a.gradient && b.gradient) {
        pairs.emplace_back(*a.gradient, *b.gradient);
      }
    });
    return pairs;
  }

  /// What the parameters changed by between backward `step` - 1 and `step`.
  std::vector<std::pair<Fingerprint, Fingerprint>> updates_before(
      uint64_t step) const {
    std::vector<std::pair<Fingerprint, Fingerprint>> before;
    std::vector<std::pair<Fingerprint, Fingerprint>> updates;
    if (step == 0 || step > comparison_.steps.size()) {
      return {};
    }
    for_pairs(step - 1, [&](const auto& a, const auto& b) {
      before.emplace_back(a.before, b.before);
    });
    size_t i = 0;
    if (step == comparison_.steps.size()) {
      // What is left at the end; the samples are not those of the end.
      return {};
    }
    for_pairs(step, [&](const auto& a, const auto& b) {
      if (i < before.size()) {
        updates.emplace_back(
            minus(a.before, before[i].first),
            minus(b.before, before[i].second));
      }
      ++i;
    });
    return updates;
  }

  /// A tensor that only the original changed before the step of the event.
  std::string not_updated() const {
    const auto& a = original_.backwards;
    const auto& b = migrated_.backwards;
    const uint64_t step = event_.step;
    for (const auto& [mine, other] : comparison_.pairs) {
      if (a[step].parameters.count(mine->id) == 0 ||
          b[step].parameters.count(other->id) == 0 ||
          a[step - 1].parameters.count(mine->id) == 0 ||
          b[step - 1].parameters.count(other->id) == 0) {
        continue;
      }
      const auto changed = [&](const auto& calls, uint32_t id) {
        return distance(
                   calls[step - 1].parameters.at(id).before,
                   calls[step].parameters.at(id).before) != 0;
      };
      if (changed(a, mine->id) && !changed(b, other->id)) {
        return mine->describe();
      }
    }
    return "";
  }

  template <typename Visit>
  void for_pairs(uint64_t step, const Visit& visit) const {
    const auto& a = original_.backwards[step].parameters;
    const auto& b = migrated_.backwards[step].parameters;
    for (const auto& [mine, other] : comparison_.pairs) {
      const auto in_a = a.find(mine->id);
      const auto in_b = b.find(other->id);
      if (in_a != a.end() && in_b != b.end()) {
        visit(in_a->second, in_b->second);
      }
    }
  }

  const Trace& original_;
  const Trace& migrated_;
  const TraceComparison& comparison_;
  const Event& event_;
  const int processes_;
  const double tolerance_;
};

} // namespace

Cause find_cause(
    const Trace& original,
    const Trace& migrated,
    const TraceComparison& comparison,
    int processes) {
  return Investigation(original, migrated, comparison, processes).find();
}

} // namespace accel::verify
