// What is said of processes that are out of step, and of what ran whole.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <map>

#include "subject_runs.h"

namespace {

TEST(OutOfStep, NamesOperationPlaceAndNumberOfEveryProcess) {
  const Folder folder;
  const Result result = accel(launch({}, {"main-only"}), in(folder));
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 15);
  expect_part(result.err, "the processes are out of step");
  expect_part(result.err, "in barrier #");
  expect_part(result.err, "called at subject.cpp:");
  expect_part(result.err, "enter_barrier");
  expect_part(result.err, "process 1 has waited");
}

TEST(OutOfStep, ProcessesThatHaveEndedAreNotWaitedFor) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  // Far longer than it takes: nobody is slow, one is gone.
  surroundings.environment["ACCEL_STALL_TIMEOUT"] = "60";
  const Result result = accel(launch({}, {"fewer-batches"}), surroundings);
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 15);
  expect_part(result.err, "the processes are out of step");
  expect_part(result.err, "process 1 has ended; its last operation: ");
  expect_part(result.err, "(add)");
}

TEST(OutOfStep, DifferentShapesAreNamed) {
  const Folder folder;
  const Result result = accel(launch({}, {"shapes"}), in(folder));
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 10);
  // Both say it, and nobody waits for a timeout.
  for (const char* part :
       {"reduce was called with a tensor Float[2] on process 0 but "
        "Float[300000] on process 1",
        "reduce was called with a tensor Float[300000] on process 1 but "
        "Float[2] on process 0"}) {
    expect_part(result.err, part);
  }
}

TEST(PlacementReport, SaysWhatRanWholeAndWhere) {
  const Folder folder;
  const Result result = accel(
      launch({"--placement-report"}, {"shared-out"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "accel: placement report of process 0 of 2");
  // What runs whole stands before the step.
  const std::string shares = "% of the operators' time was shared out, ";
  expect_part(result.err, shares);
  double without = 0;
  double in_steps = 0;
  EXPECT_EQ(
      std::sscanf(
          result.err.c_str() + result.err.find(shares) + shares.size(),
          "%lf %% without data sets and optimizers, %lf %% in training steps.",
          &without, &in_steps),
      2)
      << result.err;
  EXPECT_GT(in_steps, without);
  // Its lines: milliseconds, calls, bytes, the operator and its place.
  const auto line_of = [&](const std::string& text) {
    const auto lines = split_lines(result.err);
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&](const std::string& one) {
          return one.find(text) != std::string::npos;
        });
    EXPECT_NE(found, lines.end()) << text << " in:\n" << result.err;
    return found == lines.end() ? std::string() : *found;
  };
  double milliseconds = 0;
  int calls = 0;
  const auto inverse = line_of("aten::linalg_inv_ex");
  EXPECT_EQ(
      std::sscanf(inverse.c_str(), "%lf %d", &milliseconds, &calls), 2)
      << inverse;
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(calls, 5);
  // 4 rows of 8 floats of each of two processes, five times: 1280 bytes.
  expect_part(inverse, " 1.2 KiB ");
  expect_part(inverse, " subject.cpp:");
  expect_part(inverse, "(invert)");
  // What process 0 waited for the other is in no operator's time.
  const auto waiting = line_of("waiting for other processes, in no share");
  double waited = 0;
  EXPECT_EQ(std::sscanf(waiting.c_str(), "%lf", &waited), 1) << waiting;
  EXPECT_GT(waited, 200);
  EXPECT_LT(milliseconds, waited);
  // Process 1 has nothing to say.
  expect_no_part(result.err, "process 1");
  // And the training is the same as without.
  EXPECT_EQ(accel(launch({}, {"shared-out"}), in(folder)).err, "");
}

// What a data set and an optimizer do is no work on a batch.
TEST(PlacementReport, CountsDataSetsAndOptimizersApart) {
  const Folder folder;
  auto surroundings = in(folder);
  surroundings.environment["ACCEL_PLACEMENT_REPORT"] = "report.json";
  const Result result = accel(launch({}, {"loaded"}), surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  const auto report = folder.read("report.json");
  expect_part(report, "\"rows\": 16");
  const auto of = [&](const std::string& way) {
    const auto begin = report.find("\"" + way + "\": [");
    EXPECT_NE(begin, std::string::npos) << way;
    return report.substr(begin, report.find("\n  ]", begin) - begin);
  };
  expect_part(of("loading"), "aten::pow");
  expect_part(of("updating"), "aten::addcdiv_");
  // What the reducer does is not counted.
  expect_no_part(of("plain"), "aten::narrow");
  for (const char* way : {"plain", "in_parts"}) {
    expect_no_part(of(way), "aten::pow");
    expect_no_part(of(way), "aten::addcdiv_");
  }
  expect_part(of("in_parts"), "aten::mse_loss");
}

TEST(PlacementReport, SaysThatNothingWasDistributed) {
  const Folder folder;
  const Result result = accel(
      launch({"--placement-report"}, {"shared-out", "not"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(
      result.err,
      "placement report: no operator was given a distributed tensor");
  expect_part(result.err, "accelerator.distribute(tensor)");
}

// A program as it is shipped: functions and offsets, and what to do.
TEST(PlacementReport, NamesFunctionsWithoutDebugInformation) {
  const Folder folder;
  const std::string stripped = folder / "train";
  const Result made =
      Running({ACCEL_OBJCOPY, "--strip-debug", build_paths::kFaultsSubject, stripped})
          .wait();
  ASSERT_EQ(made.status, 0) << made.err;
  Strings arguments{"launch", "-n", "2", "--placement-report", "--", stripped,
                    "shared-out"};
  const Result result = accel(arguments, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "invert in " + stripped + " (0x");
  expect_part(result.err, "compile the program with -g");
  expect_no_part(result.err, "subject.cpp:");
}

TEST(OutOfStep, SlowProcessesAreNamedAndWaitedFor) {
  const Folder folder;
  const Result result = accel(
      launch({"--output", "main"}, {"slow", "5"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "sum 8\n");
  expect_part(result.err, "process 0 is waiting for others");
  expect_part(result.err, "process 1 computes, or waits for something else");
  expect_no_part(result.err, "out of step");
}

} // namespace
