// Runs of `accel verify` on an original and a migrated program (original.cpp,
// migrated.cpp) with a deliberate fault, or a harmless change, in the latter.
//
// In float64, two processes where not said otherwise. Steps count from 0; an
// epoch has five, the last one with 5 rows instead of 16.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "build_paths.h"

namespace {

namespace fs = std::filesystem;
using namespace build_paths;

struct Outcome {
  int status;
  std::string text;

  bool says(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
};

/// Runs a shell command in a new folder that is removed afterwards.
class Verify : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (fs::temp_directory_path() / "verify-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code none;
    fs::remove_all(folder_, none);
  }

  Outcome shell(const std::string& command) {
    const std::string all =
        "cd '" + folder_.string() + "' && " + command + " 2>&1";
    FILE* pipe = ::popen(all.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    Outcome outcome{-1, ""};
    char buffer[4096];
    for (size_t size; (size = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      outcome.text.append(buffer, size);
    }
    const int status = ::pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }

  Outcome verify(const std::string& options, const std::string& change = "") {
    return shell(
        "ACCEL_TEST_CHANGE=" + change + " " + kAccel + " verify --original " +
        kVerifyOriginal + " --migrated " + kVerifyMigrated + " " + options);
  }

  /// The fault is reported with `finding` and `cause`, and as a difference.
  void expect_reported(
      const std::string& fault,
      const std::string& finding,
      const std::string& cause,
      const std::string& options = "--double -n 2 --no-repeat") {
    const auto outcome = verify(options, fault);
    EXPECT_EQ(outcome.status, 1) << outcome.text;
    EXPECT_TRUE(outcome.says("DIFFERENT")) << outcome.text;
    EXPECT_TRUE(outcome.says(finding)) << outcome.text;
    EXPECT_TRUE(outcome.says(cause)) << outcome.text;
  }

  /// The changes, all together, are no difference.
  void expect_equal(
      const std::string& changes,
      const std::string& options = "--double -n 2 --no-repeat") {
    const auto outcome = verify(options, changes);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says("equal  15 steps")) << outcome.text;
  }

  std::string read(const std::string& name) {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file),
            std::istreambuf_iterator<char>()};
  }

  fs::path folder_;
};

TEST_F(Verify, EqualInDoubleOnOneTwoAndThreeProcesses) {
  const auto outcome = verify("--double -n 1,2,3");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("1 process     equal  15 steps")) << outcome.text;
  EXPECT_TRUE(outcome.says("2 processes   equal  15 steps")) << outcome.text;
  EXPECT_TRUE(outcome.says("3 processes   equal  15 steps")) << outcome.text;
  EXPECT_TRUE(outcome.says("float64")) << outcome.text;
  // Three lines with three numbers each, net.pt and done.txt.
  EXPECT_TRUE(outcome.says("9 printed numbers, 2 files")) << outcome.text;
}

// Parameters in parts are the original's, too, and so are the bytes of the model's file.
TEST_F(Verify, EqualWithOptionsOfLaunch) {
  const auto outcome = verify(
      "--double --no-repeat --launch '-n 2 --fsdp FULL_SHARD' "
      "--launch '-n 2 --tp 2'");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("-n 2 --fsdp FULL_SHARD  equal  15 steps"))
      << outcome.text;
  EXPECT_TRUE(outcome.says("-n 2 --tp 2   equal  15 steps")) << outcome.text;
  EXPECT_FALSE(outcome.says("could not be read")) << outcome.text;
  EXPECT_FALSE(outcome.says("1 process ")) << outcome.text;
}

TEST_F(Verify, FinalValuesOfPartsBehindTheLastOfSomeSteps) {
  const auto outcome = verify(
      "--double --no-repeat --max-steps 7 --launch '-n 2 --fsdp FULL_SHARD'");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("equal  7 steps")) << outcome.text;
  EXPECT_FALSE(outcome.says("could not be read")) << outcome.text;
}

TEST_F(Verify, AFaultOfOneLaunch) {
  const auto outcome = verify(
      "--double --no-repeat -n 1 --launch '-n 2 --fsdp FULL_SHARD'",
      "everybody-prints");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_TRUE(outcome.says("1 process     equal")) << outcome.text;
  EXPECT_TRUE(outcome.says("-n 2 --fsdp FULL_SHARD  DIFFERENT"))
      << outcome.text;
}

TEST_F(Verify, LaunchOptionsMustSayHowManyProcesses) {
  auto outcome = verify("--launch '--fsdp FULL_SHARD'");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says(
      "--launch: '--fsdp FULL_SHARD' does not say how many processes; write -n, "
      "too: '-n 2 --fsdp FULL_SHARD'"))
      << outcome.text;
  outcome = verify("--launch '-n 2 --output x'");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("'--output' in '-n 2 --output x' has no place there"))
      << outcome.text;
}

TEST_F(Verify, EqualInFloat) {
  const auto outcome = verify("-n 2 --no-repeat");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("float32")) << outcome.text;
}

// ---- 25 changes that change nothing, in groups that go together. One of them
// alone: ACCEL_TEST_CHANGE=NAME accel verify --double ….

TEST_F(Verify, HarmlessOrderInsideOfAShare) {
  // Dropout belongs to a row's place in the batch.
  expect_equal("share-order", "--double -n 2 --no-repeat -- --no-dropout");
}

TEST_F(Verify, HarmlessNamesPrintsAndFiles) {
  expect_equal("threads,names,addresses,iostream,stderr,rename,sleep,extra-tensors");
}

TEST_F(Verify, HarmlessNameOfTheProgram) {
  expect_equal("", "--double -n 2 --no-repeat -- --name");
}

TEST_F(Verify, PlacementReportsOfRunsAreFilesOfTheirOwn) {
  const std::string report = (folder_ / "placement.json").string();
  ASSERT_EQ(::setenv("ACCEL_PLACEMENT_REPORT", report.c_str(), 1), 0);
  const auto outcome = verify("--double -n 2,3 --no-repeat");
  ::unsetenv("ACCEL_PLACEMENT_REPORT");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(read("placement.2.json").find("\"processes\": 2"), std::string::npos);
  EXPECT_NE(read("placement.3.json").find("\"processes\": 3"), std::string::npos);
}

TEST_F(Verify, HarmlessArithmetic) {
  expect_equal(
      "zero-in-place,loss-by-hand,not-contiguous,two-groups,clip-by-hand,"
      "average-by-lerp,layers-by-hand,sum-in-tensor,retain-graph,"
      "weight-given");
}

TEST_F(Verify, HarmlessAveragingByHand) {
  expect_equal("by-hand,extra-forward,flush,zero-late");
}

TEST_F(Verify, HarmlessAveragingInAnotherOrder) {
  expect_equal(
      "reverse-averaging,divide-first", "--double -n 3 --no-repeat");
}

TEST_F(Verify, HarmlessAveragingInOneBuffer) {
  expect_equal("flat-averaging");
}

TEST_F(Verify, GradientThatNobodyStepsOnIsEqual) {
  // A part of a sum that no reducer has brought together, since nothing has
  // prepared its parameter: whoever reads it reads the sum.
  const auto outcome = verify("--double -n 2 --no-repeat -- --backbone");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("equal  15 steps")) << outcome.text;
  EXPECT_FALSE(outcome.says("is never changed")) << outcome.text;
}

// ---- Faults.

TEST_F(Verify, NoAveraging) {
  expect_reported(
      "no-averaging",
      "step 0: process 1 and process 0: the gradient of Linear#",
      "they were not averaged");
}

TEST_F(Verify, OneGradientNotAveraged) {
  expect_reported(
      "one-not-averaged",
      "step 0: process 1 and process 0: the gradient of Linear#1.bias [12]",
      "they were not averaged");
}

TEST_F(Verify, NoAveragingBesideAGradientThatNobodyStepsOn) {
  expect_reported(
      "no-averaging",
      "step 0: process 1 and process 0: the gradient of Linear#",
      "they were not averaged",
      "--double -n 2 --no-repeat -- --backbone");
}

TEST_F(Verify, SumForMean) {
  expect_reported(
      "sum-for-mean",
      "step 0: the gradient of Linear#",
      "all gradients are 2 times the original's, the number of processes");
}

TEST_F(Verify, SumForMeanOfThree) {
  expect_reported(
      "sum-for-mean",
      "step 0: the gradient of Linear#",
      "all gradients are 3 times the original's, the number of processes",
      "--double -n 3 --no-repeat");
}

TEST_F(Verify, SumForMeanInFloat) {
  expect_reported(
      "sum-for-mean",
      "step 0: the gradient of Linear#",
      "all gradients are 2 times the original's",
      "-n 2 --no-repeat");
}

TEST_F(Verify, LossTimesTheNumberOfProcesses) {
  expect_reported(
      "loss-times-n",
      "step 0: the loss",
      "the loss is the number of processes times the original's");
}

TEST_F(Verify, LastBatchWeighedWrongly) {
  expect_reported(
      "last-batch",
      "step 4: the gradient of Linear#",
      "it is the first batch with fewer rows (5)");
}

TEST_F(Verify, LastBatchFilledUpFromTheFirst) {
  expect_reported(
      "wrap-around",
      "step 4: the loss",
      "this batch holds other samples");
}

TEST_F(Verify, LastBatchLeftOut) {
  expect_reported(
      "drop-last",
      "step 4: the loss",
      "do not call backward equally often (15 and 12 times)");
}

TEST_F(Verify, LocalMetricPrinted) {
  expect_reported(
      "local-metric",
      "what is printed differs in line 1: number 2",
      "a metric that is computed from one process's part");
}

TEST_F(Verify, MetricNotGathered) {
  expect_reported(
      "missing-gather",
      "what is printed differs in line 1: number 3",
      "a metric that is computed from one process's part");
}

TEST_F(Verify, MetricRoundedToFloat) {
  expect_reported(
      "float-metric",
      "what is printed differs in line 1: number 2",
      "only what is printed differs, by little more than rounding");
}

TEST_F(Verify, MissingBroadcast) {
  expect_reported(
      "missing-broadcast",
      "step 0: process 1 and process 0: Linear#1.weight [12, 4] before the step",
      "they were not broadcast");
}

TEST_F(Verify, ClipBeforeAveraging) {
  expect_reported(
      "clip-before-averaging",
      "step 0: the gradient of Linear#",
      "before they are averaged (clipping, scaling)");
}

TEST_F(Verify, ClipWithAnotherBound) {
  expect_reported(
      "other-bound",
      "step 1: Linear#1.weight [12, 4] before the step",
      "the update is 2 times the original's");
}

TEST_F(Verify, OtherSeed) {
  expect_reported("other-seed", "step 0: Linear#", "another seed");
}

TEST_F(Verify, OtherOrderOfData) {
  expect_reported(
      "order",
      "step 5: the loss",
      "holds other samples or is in another order");
}

/// While it lives the runtime does not compare by itself what the processes
/// have made, so that a difference gets as far as accel verify.
struct Unchecked {
  explicit Unchecked(const char* name) : variable(name) {
    ::setenv(variable, "0", /*overwrite=*/1);
  }
  ~Unchecked() {
    ::unsetenv(variable);
  }
  const char* variable;
};

TEST_F(Verify, OtherOrderOfDataOnOneProcess) {
  const Unchecked batches("ACCEL_CHECK_BATCHES");
  expect_reported(
      "rank-order",
      "step 0: the loss",
      "holds other samples or is in another order");
}

TEST_F(Verify, OtherDropoutOnOneProcess) {
  const Unchecked batches("ACCEL_CHECK_BATCHES");
  const Unchecked values("ACCEL_CHECK_VALUES");
  expect_reported("rank-noise", "step 0: the loss", "(dropout, noise)");
}

TEST_F(Verify, OtherDropoutOnOneProcessEndsTheProgram) {
  const auto outcome = verify("--double -n 2 --no-repeat", "rank-noise");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("have drawn other random numbers")) << outcome.text;
}

TEST_F(Verify, OtherBatchesOnOneProcessEndTheProgram) {
  const auto outcome = verify("--double -n 2 --no-repeat", "rank-order");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("NOT COMPARED")) << outcome.text;
  EXPECT_TRUE(outcome.says("have made different batches")) << outcome.text;
}

TEST_F(Verify, LeftInEvaluationMode) {
  expect_reported("eval-mode", "step 5: the loss", "evaluation mode");
}

TEST_F(Verify, DataRoundedToFloat) {
  expect_reported(
      "float-data", "step 0: the ", "something is computed in float32");
}

TEST_F(Verify, GradientsNotCleared) {
  expect_reported(
      "kept-gradients",
      "step 3: the gradient of Linear#",
      "zero_grad() is missing");
}

TEST_F(Verify, SkippedStep) {
  expect_reported(
      "skipped-step",
      "step 8: Linear#",
      "after backward 7, whose gradients are equal, the migrated program does "
      "not update its parameters: optimizer.step() was skipped");
}

TEST_F(Verify, ScheduleStepsOnceForEachProcess) {
  expect_reported(
      "schedule-per-process",
      "step 11: Linear#",
      "the update is 0.5 times the original's: the learning rate");
}

TEST_F(Verify, OtherOptions) {
  expect_reported(
      "other-momentum",
      "step 2: Linear#",
      "the updates differ: clipping, the optimizer's options");
}

TEST_F(Verify, FrozenParameter) {
  expect_reported(
      "frozen",
      "step 1: Linear#2.bias [1] before the step",
      "the migrated program does not update Linear#2.bias [1]");
}

TEST_F(Verify, DetachedLayers) {
  expect_reported(
      "detached",
      "step 1: BatchNorm1d#1.weight [12] before the step",
      "backward 0 of the migrated program does not reach Linear#1.weight [12, 4]");
}

TEST_F(Verify, LocalBuffer) {
  expect_reported(
      "local-buffer",
      "after all 15 steps: the final value of Net#1.mean [4]",
      "the buffers of process 1 are not those of process 0");
}

TEST_F(Verify, LocalBufferOfAnotherProcess) {
  expect_reported(
      "rank-buffer",
      "after all 15 steps: the final value of Net#1.mean [4]",
      "the buffers of process 1 are not those of process 0");
}

TEST_F(Verify, AverageOfTheModelOnOneProcess) {
  expect_reported(
      "local-average",
      "process 1 and process 0: after all 15 steps: the final value of "
      "Average#1.weight [12, 4]",
      "that no backward reaches");
}

TEST_F(Verify, AverageOfTheModelTwice) {
  expect_reported(
      "average-twice",
      "after all 15 steps: the final value of Average#1.weight [12, 4]",
      "that no backward reaches");
}

TEST_F(Verify, OneBackwardTooMany) {
  expect_reported(
      "backward-twice",
      "step 10: ",
      "do not call backward equally often (15 and 16 times)");
}

TEST_F(Verify, OneEpochTooFew) {
  expect_reported(
      "epoch-too-few",
      "15 backward calls in the original, 10 in the migrated program",
      "the migrated program stops early");
}

TEST_F(Verify, EverybodyPrints) {
  expect_reported(
      "everybody-prints",
      "process 1 printed, too: epoch 0 loss",
      "prints that are not restricted to the main process");
}

TEST_F(Verify, OtherText) {
  expect_reported(
      "other-text",
      "3 lines in the original, 4 in the migrated program",
      "only what is printed differs");
}

TEST_F(Verify, WrongFile) {
  expect_reported(
      "wrong-file", "the file net.pt: the tensor", "only what is written");
}

TEST_F(Verify, MissingFile) {
  expect_reported(
      "missing-file",
      "the file net.pt: only the original wrote it",
      "only what is written");
}

TEST_F(Verify, ProgramThatFailsIsNotCompared) {
  const auto outcome = verify("-n 2 --no-repeat", "process-stops");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("NOT COMPARED")) << outcome.text;
  EXPECT_TRUE(outcome.says("with 2 processes failed with exit code"))
      << outcome.text;
}

TEST_F(Verify, ProgramThatHangsIsEnded) {
  const auto outcome = verify("-n 2 --no-repeat --timeout 8", "process-hangs");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("ran longer than --timeout allows"))
      << outcome.text;
}

TEST_F(Verify, OriginalThatDoesNotRepeatIsNotCompared) {
  const auto outcome = verify("-n 1 -- --clock-seed");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("two runs of the original already differ, at step 0"))
      << outcome.text;
}

TEST_F(Verify, SeedByChanceIsTheSameInEachRun) {
  const auto outcome = verify("--double -n 1 -- --random-seed");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("1 process     equal  15 steps")) << outcome.text;
}

// Whatever a library draws; other processes draw something else, so that what is
// not broadcast is seen.
TEST_F(Verify, ChanceIsThatOfTheProgram) {
  const auto draw = [&](const std::string& environment, const std::string& more) {
    return shell(
        environment + "ACCEL_TRACE_TIME=1700000000 ACCEL_TRACE_SEED=0 LD_PRELOAD=" +
        kTraceLibrary + " " + kVerifyChance + " " + more);
  };
  const auto first = draw("", ""), again = draw("RANK=0 ", "more"),
             other = draw("RANK=2 ", "");
  EXPECT_EQ(first.status, 0);
  EXPECT_TRUE(first.says(" 1700000000\n")) << first.text;
  EXPECT_EQ(first.text, again.text);
  EXPECT_TRUE(other.says(" 1700000002\n")) << other.text;
  EXPECT_NE(
      other.text.substr(0, other.text.find(' ')),
      first.text.substr(0, first.text.find(' ')));
  const size_t second = first.text.find('\n') + 1;
  EXPECT_NE(
      first.text.substr(0, first.text.find(' ')),
      first.text.substr(second, first.text.find(' ', second) - second));
}

TEST_F(Verify, ProgramThatLeavesByExitIsNotCompared) {
  const auto outcome = verify("-n 1 --no-repeat -- --leave-early");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("ended without leaving main")) << outcome.text;
}

TEST_F(Verify, ProgramWithoutBackwardIsComparedByWhatItShows) {
  fs::copy_file(kVerifyOriginal, folder_ / "other");
  const auto run = [&](const std::string& options) {
    return shell(
        std::string("ACCEL_TEST_ENDS_FULLY=1 ") + kAccel + " verify --original " +
        kVerifyOriginal + " --migrated ./other --double -n 1 --no-repeat -- --by-grad" + options);
  };
  const auto equal = run("");
  EXPECT_EQ(equal.status, 0) << equal.text;
  EXPECT_TRUE(equal.says("equal  no backward was called: 9 printed numbers, 2 files"))
      << equal.text;
  const auto different = run(" --clock-seed");
  EXPECT_EQ(different.status, 1) << different.text;
  EXPECT_TRUE(different.says("what is printed differs")) << different.text;
}

TEST_F(Verify, ProgramWithoutLibTorchIsNotCompared) {
  const auto outcome = shell(
      std::string(kAccel) +
      " verify --original /bin/true --migrated /bin/true -n 1");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("process 0 was not recorded")) << outcome.text;
}

TEST_F(Verify, SeedComesFromOutsideWhereThereIsNone) {
  const auto outcome = verify("--double -n 1,2 -- --no-seed");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST_F(Verify, MemoryOfTheProgramHoldsFloats) {
  const auto outcome = verify("--double -n 1,2 -- --blob");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST_F(Verify, Float32ThatIsNamedIsWidenedToo) {
  const auto outcome = verify("--double -n 1,2,3 -- --float");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("once more")) << outcome.text;
  EXPECT_TRUE(outcome.says("Allowed difference in float64")) << outcome.text;
}

// Data that is filled and weights that are read as float do not keep the modules
// from computing in float64.
TEST_F(Verify, ModulesAreWidenedWhereElementsAreTakenForFloat) {
  for (const std::string flags : {"--fill-float", "--float --read-float"}) {
    const auto outcome = verify(
        "--double -n 1,3 --no-repeat --launch '-n 2 --fsdp FULL_SHARD' -- " +
        flags);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says("the original: failed with exit code 134"))
        << outcome.text;
    EXPECT_TRUE(outcome.says("its modules in float64 and its data as they are"))
        << outcome.text;
    EXPECT_TRUE(outcome.says("Allowed difference in float64")) << outcome.text;
    EXPECT_FALSE(outcome.says("compared in float32")) << outcome.text;
  }
}

TEST_F(Verify, AFaultIsSeenWhereOnlyModulesAreWidened) {
  const auto outcome = verify(
      "--double -n 2 --no-repeat -- --fill-float", "other-momentum");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_TRUE(outcome.says("Allowed difference in float64")) << outcome.text;
}

TEST_F(Verify, ElementsWrittenAsFloatAreComparedInFloat32) {
  const auto outcome = verify(
      "--double -n 2 --no-repeat --report page.html -- "
      "--fill-float --write-float");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("the original: failed with exit code 134"))
      << outcome.text;
  EXPECT_TRUE(outcome.says("Note: compared in float32, not in float64"))
      << outcome.text;
  EXPECT_TRUE(outcome.says("Allowed difference in float32")) << outcome.text;
  EXPECT_NE(read("page.html").find("compared in float32, not in float64"),
            std::string::npos);
}

TEST_F(Verify, ProgramsThatComputeNaNAreNotCompared) {
  const auto outcome = verify("--double -n 1,2 -- --nan");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("NOT COMPARED")) << outcome.text;
  EXPECT_TRUE(outcome.says("NaN in 15 of 15 steps")) << outcome.text;
}

TEST_F(Verify, StepsWithNaNAreSaid) {
  const auto outcome = verify("--double -n 2 --no-repeat -- --nan-at-last");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("NaN in 5 steps, first in step 10"))
      << outcome.text;
}

TEST_F(Verify, WhatRoundingDecidesIsNotCompared) {
  const auto outcome = verify("--double -n 1,2 -- --astray");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("1 process     equal  15 steps")) << outcome.text;
  EXPECT_TRUE(outcome.says("2 processes   NOT COMPARED  step ")) << outcome.text;
  EXPECT_TRUE(outcome.says("the original differs from itself as much"))
      << outcome.text;
}

TEST_F(Verify, AFaultIsOneWhereRoundingIsLarge) {
  const auto outcome = verify("--double -n 2 -- --astray", "kept-gradients");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_TRUE(outcome.says("2 processes   DIFFERENT  step ")) << outcome.text;
  EXPECT_TRUE(outcome.says("note: rounding does not explain this"))
      << outcome.text;
}

TEST_F(Verify, TimesAreNotCompared) {
  const auto outcome = verify("--double -n 2 -- --clock");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("were not compared: 1"))
      << outcome.text;
}

TEST_F(Verify, MaxStepsEndsBothPrograms) {
  const auto outcome = verify("--double -n 1,2 --no-repeat --max-steps 7");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("2 processes   equal  7 steps")) << outcome.text;
}

TEST_F(Verify, MaxStepsBeforeTheFaultIsEqual) {
  EXPECT_EQ(
      verify("--double -n 2 --no-repeat --max-steps 4", "last-batch").status, 0);
}

TEST_F(Verify, RecordingChangesNothing) {
  const auto plain = shell(kVerifyOriginal);
  const auto traced = shell(
      std::string("ACCEL_TRACE_DIRECTORY=. LD_PRELOAD=") + kTraceLibrary + " " +
      kVerifyOriginal);
  EXPECT_EQ(plain.status, 0) << plain.text;
  EXPECT_EQ(traced.status, 0) << traced.text;
  EXPECT_NE(plain.text, "");
  EXPECT_EQ(plain.text, traced.text);
  EXPECT_TRUE(fs::exists(folder_ / "rank-0.trace"));
}

// Of the run that tells what rounding does: other values, in the last digits only, and
// the same random numbers.
TEST_F(Verify, NoiseIsARounding) {
  const auto record = [&](const std::string& folder, const std::string& noise) {
    fs::create_directory(folder_ / folder);
    const auto run = shell(
        noise + "ACCEL_TRACE_DOUBLE=default ACCEL_TRACE_SEED=0 ACCEL_TRACE_DIRECTORY=" +
        folder + " LD_PRELOAD=" + kTraceLibrary + " " + kVerifyOriginal);
    EXPECT_EQ(run.status, 0) << run.text;
    return std::make_pair(run.text, read(folder + "/rank-0.safetensors"));
  };
  const auto plain = record("plain", ""), again = record("again", ""),
             changed = record("changed", "ACCEL_TRACE_NOISE=1 ");
  EXPECT_NE(plain.second, "");
  EXPECT_TRUE(plain.second == again.second);
  EXPECT_FALSE(plain.second == changed.second);
  EXPECT_EQ(plain.first, changed.first); // nine digits
}

TEST_F(Verify, ReportIsOnePageThatNeedsNothingElse) {
  const auto outcome = verify(
      "--double -n 1,2 --no-repeat --report page.html", "last-batch");
  EXPECT_EQ(outcome.status, 1) << outcome.text;
  const std::string page = read("page.html");
  for (const char* part :
       {"<!doctype html>", "prefers-color-scheme: dark", "<svg",
        "differs from step 4", "Linear#1.weight [12, 4]", "net.pt",
        "epoch 2 loss", "</html>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  for (const char* part : {"<script", "http:", "https:", "src=", "{{"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
}

TEST_F(Verify, LeavesTheWorkingDirectoryAlone) {
  std::ofstream(folder_ / "data.txt") << "mine\n";
  const auto outcome = verify("-n 2 --no-repeat");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) {
    ++count;
  }
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(read("data.txt"), "mine\n");
}

TEST_F(Verify, FindsEverythingFromRelativePaths) {
  // accel through a link, from $PATH; the programs below and through a link.
  for (const char* name : {"bin", "run", "programs"}) {
    fs::create_directory(folder_ / name);
  }
  fs::create_symlink(kAccel, folder_ / "bin/accel");
  fs::create_symlink(kVerifyOriginal, folder_ / "programs/original");
  fs::create_symlink(kVerifyMigrated, folder_ / "run/migrated");
  for (const std::string called :
       {"../bin/accel", "PATH=../bin:$PATH accel"}) {
    const auto outcome = shell(
        "cd run && " + called +
        " verify --original ../programs/original --migrated ./migrated -n 2 "
        "--no-repeat --max-steps 3");
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(outcome.says("2 processes   equal  3 steps")) << outcome.text;
  }
  const auto outcome = shell(
      "cd run && ../bin/accel verify --original ../programs/original "
      "--migrated migrated");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("Did you mean ./migrated?")) << outcome.text;
}

TEST_F(Verify, SaysWhatIsMissing) {
  const auto outcome = shell(std::string(kAccel) + " verify --original a");
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(outcome.says("--migrated is missing")) << outcome.text;
}

} // namespace
