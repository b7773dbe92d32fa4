#include "rounding.h"

#include <algorithm>
#include <string>

#include "tolerance.h"

namespace accel::verify {
namespace {

/// Two ways of rounding are no measure of a third, but of its size, and of when it
/// comes to that, within as many steps more. Of what is as small as `kSmall`, which
/// errors in float64 seldom are, not even its size, nor when: a weight whose gradient is
/// 1 - 1 gets what rounding leaves of that at any step.
constexpr double kOtherWay = 10;
constexpr double kSmall = 1e-8;
constexpr size_t kSoon = 10;

/// How far a third way may be apart where two are.
double reach_of(double apart, const TraceComparison& found) {
  return std::max(
      kOtherWay * apart,
      found.dtype == Dtype::kDouble ? std::min(100 * apart, kSmall) : 0);
}

double largest(const StepRow& row) {
  return std::max({row.loss, row.gradient, row.state});
}

bool explains_training(
    const TraceComparison& rounding, const TraceComparison& found) {
  double anytime = 0;
  if (found.dtype == Dtype::kDouble) {
    for (const auto& row : rounding.steps) {
      anytime = std::max(anytime, largest(row));
    }
    anytime = std::min(kOtherWay * anytime, kSmall);
  }
  double reach = 0;
  size_t taken = 0;
  for (size_t step = 0; step < found.steps.size(); ++step) {
    while (taken < rounding.steps.size() && taken <= 2 * step + kSoon) {
      reach = std::max(reach, largest(rounding.steps[taken++]));
    }
    const auto& row = found.steps[step];
    if (!(largest(row) <=
          std::max({row.allowed, reach_of(reach, found), anytime}))) {
      return false;
    }
  }
  return found.largest_final() <=
      std::max(
          found.tolerance.at(found.backwards_original),
          reach_of(rounding.largest_final(), found));
}

/// Where rounding alone takes a model's values as far as this, what is decided by
/// them may come out either way.
constexpr double kAstray = 1e-3;

bool has_other_words(const Verdict& verdict) {
  return verdict.text.different && !verdict.text.only_numbers;
}

/// Words follow numbers: a plot of signs, the name of the largest.
bool explains_words(const Verdict& rounding, const Verdict& found) {
  return !has_other_words(found) ||
      (rounding.text.lines.size() == found.text.lines.size() &&
       (has_other_words(rounding) ||
        rounding.trace->largest_final() >= kAstray));
}

/// What is printed follows the training: where rounding leads that astray, as far
/// as it likes.
bool explains_text(const Verdict& rounding, const Verdict& found) {
  if (!explains_words(rounding, found)) {
    return false;
  }
  return (found.trace->first && rounding.text.different) ||
      found.text.largest <=
      std::max(
          found.trace->tolerance.at(found.trace->backwards_original),
          reach_of(rounding.text.largest, *found.trace));
}

bool explains_files(
    const FilesComparison& rounding, const FilesComparison& found) {
  return std::all_of(
      found.files.begin(), found.files.end(), [&](const auto& file) {
        return !file.different ||
            std::any_of(
                rounding.files.begin(),
                rounding.files.end(),
                [&](const auto& other) {
                  return other.name == file.name && other.different;
                });
      });
}

} // namespace

bool may_be_rounding(const Verdict& verdict, const Run& migrated) {
  if (verdict.outcome != Outcome::kDifferent || !verdict.trace) {
    return false;
  }
  const auto& first = verdict.trace->first;
  if (first &&
      (first->between_processes || first->kind == EventKind::kCount)) {
    return false;
  }
  // Words alone are not numbers that rounding has led astray.
  return (!has_other_words(verdict) || verdict.trace->first) &&
      std::all_of(
             std::next(migrated.output.begin()),
             migrated.output.end(),
             [](const std::string& text) { return text.empty(); });
}

void weigh_rounding(const Verdict& other, Verdict& verdict) {
  if (!other.trace) {
    return;
  }
  const bool explained = explains_training(*other.trace, *verdict.trace) &&
      explains_text(other, verdict) &&
      explains_files(other.files, verdict.files);
  const std::string much = "loss by " +
      short_number(other.trace->largest_loss()) + ", gradients by " +
      short_number(other.trace->largest_gradient()) + ", final parameters by " +
      short_number(other.trace->largest_final()) + ", printed numbers by " +
      short_number(other.text.largest);
  if (!explained) {
    verdict.notes.push_back(
        "rounding does not explain this: computed with other instructions, the "
        "original differs from itself less (" +
        much + ")");
    return;
  }
  verdict.outcome = Outcome::kNotCompared;
  verdict.finding += "; computed with other instructions, the original differs "
                     "from itself as much (" +
      much + ")";
  verdict.cause = {
      "this program makes rounding so large that it hides what else may differ"
      + std::string(
            verdict.trace->dtype == Dtype::kDouble
                ? ""
                : "; accel verify --double tells rounding from errors"),
      "rounding"};
}

} // namespace accel::verify
