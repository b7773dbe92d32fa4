#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rounding.h"

namespace accel::verify {
namespace {

/// A verdict of a comparison whose states are so far apart, step by step.
Verdict apart(const std::vector<double>& states, double printed = 0) {
  Verdict verdict;
  verdict.outcome = Outcome::kEqual;
  verdict.trace.emplace();
  auto& trace = *verdict.trace;
  trace.dtype = Dtype::kDouble;
  trace.tolerance = tolerance_for(trace.dtype);
  trace.backwards_original = trace.backwards_migrated = states.size();
  for (size_t step = 0; step < states.size(); ++step) {
    StepRow row;
    row.state = states[step];
    row.allowed = trace.tolerance.at(step);
    trace.steps.push_back(row);
    if (row.state > row.allowed && !trace.first) {
      trace.first = Event{EventKind::kState, step, "a weight"};
      verdict.outcome = Outcome::kDifferent;
    }
  }
  verdict.text.largest = printed;
  verdict.text.different = printed > trace.tolerance.at(states.size());
  verdict.text.only_numbers = verdict.text.different;
  if (verdict.text.different) {
    verdict.outcome = Outcome::kDifferent;
  }
  return verdict;
}

/// Steps of which those from `from` on are `difference` apart.
std::vector<double> steps(size_t count, size_t from, double difference) {
  std::vector<double> result(count, 0);
  for (size_t step = from; step < count; ++step) {
    result[step] = difference;
  }
  return result;
}

Outcome weighed(const Verdict& rounding, Verdict found) {
  EXPECT_EQ(found.outcome, Outcome::kDifferent);
  weigh_rounding(rounding, found);
  EXPECT_EQ(
      found.notes.size(), found.outcome == Outcome::kDifferent ? 1U : 0U);
  return found.outcome;
}

TEST(Rounding, ExplainsWhatIsAsFarAndAsEarly) {
  const auto rounding = apart(steps(100, 40, 1e-6));
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 30, 4e-6))), Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 60, 4e-6))), Outcome::kNotCompared);
}

TEST(Rounding, DoesNotExplainWhatIsFurther) {
  const auto rounding = apart(steps(100, 40, 1e-6));
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 60, 4e-5))), Outcome::kDifferent);
  // Also where it begins as small.
  auto states = steps(100, 40, 1e-6);
  states[99] = 1e-3;
  EXPECT_EQ(weighed(rounding, apart(states)), Outcome::kDifferent);
}

TEST(Rounding, ExplainsWhatIsSmallInDouble) {
  const auto rounding = apart(steps(100, 40, 1e-10));
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 60, 8e-9))), Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 60, 2e-8))), Outcome::kDifferent);
}

TEST(Rounding, DoesNotExplainWhatIsMuchEarlier) {
  const auto rounding = apart(steps(100, 40, 1e-6));
  EXPECT_EQ(
      weighed(rounding, apart(steps(100, 5, 1e-6))), Outcome::kDifferent);
}

TEST(Rounding, OfWhatIsPrintedAlone) {
  const auto quiet = steps(20, 0, 0);
  EXPECT_EQ(
      weighed(apart(quiet, 1e-7), apart(quiet, 5e-7)), Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(apart(quiet, 1e-7), apart(quiet, 5e-6)), Outcome::kDifferent);
  // Where the training goes astray, what is printed may be anything.
  EXPECT_EQ(
      weighed(
          apart(steps(20, 4, 1e-3), 0.01), apart(steps(20, 4, 1e-3), 0.4)),
      Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(apart(steps(20, 4, 1e-3)), apart(steps(20, 4, 1e-3), 0.4)),
      Outcome::kDifferent);
}

TEST(Rounding, ExplainsWordsWhereItChangesWords) {
  const auto with_words = [](bool different, size_t lines) {
    auto verdict = apart(steps(20, 4, 1e-3));
    verdict.text.different = different;
    verdict.text.lines.resize(lines);
    return verdict;
  };
  EXPECT_EQ(
      weighed(with_words(true, 8), with_words(true, 8)), Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(with_words(false, 8), with_words(true, 8)), Outcome::kDifferent);
  EXPECT_EQ(
      weighed(with_words(true, 7), with_words(true, 8)), Outcome::kDifferent);
  auto numbers = with_words(true, 8);
  numbers.text.only_numbers = true;
  EXPECT_EQ(weighed(numbers, with_words(true, 8)), Outcome::kDifferent);
  // A model that it takes far decides otherwise, here or there.
  auto far = with_words(false, 8);
  far.trace->tensors.emplace_back().final = 1e-2;
  EXPECT_EQ(weighed(far, with_words(true, 8)), Outcome::kNotCompared);
}

TEST(Rounding, ExplainsFilesThatItChanges) {
  const auto with_file = [](const std::string& name, bool different) {
    auto verdict = apart(steps(20, 4, 1e-6));
    verdict.files.files.push_back({name, "text", "", "", different, false});
    return verdict;
  };
  EXPECT_EQ(
      weighed(with_file("a.csv", true), with_file("a.csv", true)),
      Outcome::kNotCompared);
  EXPECT_EQ(
      weighed(with_file("a.csv", false), with_file("a.csv", true)),
      Outcome::kDifferent);
  EXPECT_EQ(
      weighed(with_file("b.csv", true), with_file("a.csv", true)),
      Outcome::kDifferent);
}

TEST(Rounding, IsNotAskedAboutWordsAloneCountsAndProcesses) {
  verify::Run migrated;
  migrated.output = {"loss 1\n", ""};
  auto verdict = apart(steps(20, 4, 1e-6));
  EXPECT_TRUE(may_be_rounding(verdict, migrated));
  verdict.trace->first->between_processes = true;
  EXPECT_FALSE(may_be_rounding(verdict, migrated));
  verdict.trace->first->between_processes = false;
  verdict.trace->first->kind = EventKind::kCount;
  EXPECT_FALSE(may_be_rounding(verdict, migrated));
  verdict.trace->first->kind = EventKind::kLoss;
  verdict.text.different = true; // in its words
  EXPECT_TRUE(may_be_rounding(verdict, migrated));
  verdict.trace->first.reset(); // alone
  EXPECT_FALSE(may_be_rounding(verdict, migrated));
  verdict.text.only_numbers = true;
  EXPECT_TRUE(may_be_rounding(verdict, migrated));
  migrated.output[1] = "loss 1\n";
  EXPECT_FALSE(may_be_rounding(verdict, migrated));
  EXPECT_FALSE(may_be_rounding(apart(steps(20, 0, 0)), migrated));
}

} // namespace
} // namespace accel::verify
