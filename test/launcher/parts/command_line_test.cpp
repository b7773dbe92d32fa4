// What `accel launch` reads and what it gives its processes.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "environment.h"
#include "error.h"
#include "launch_command.h"
#include "port.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

TEST(Suggestion, CountsSlipsOfTheFinger) {
  EXPECT_EQ(edit_distance("launch", "launch"), 0u);
  EXPECT_EQ(edit_distance("lanuch", "launch"), 1u);
  EXPECT_EQ(edit_distance("lanch", "launch"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Suggestion, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(suggest("lanch", {"launch", "flags"}), " (did you mean launch?)");
  EXPECT_EQ(suggest("bananas", {"launch", "flags"}), "");
}

/// How many entries set `name`.
long settings(const Lines& environment, const std::string& name) {
  return std::count_if(
      environment.begin(), environment.end(), [&](const std::string& entry) {
        return entry.rfind(name + "=", 0) == 0;
      });
}

TEST(Environment, OverwritesAnOuterLaunch) {
  LaunchOptions options;
  options.num_processes = options.world_size = 3;
  const Lines result = environment(
      options,
      {"RANK=7",
       "WORLD_SIZE=9",
       "MASTER_PORT=1",
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "TORCHELASTIC_ERROR_FILE=/tmp/x",
       "ACCEL_FAILURE_NOTE=/outer",
       "HOME=/home/me"});
  EXPECT_TRUE(has(result, "RANK=1"));
  EXPECT_TRUE(has(result, "WORLD_SIZE=3"));
  EXPECT_TRUE(has(result, "MASTER_PORT=4321"));
  EXPECT_TRUE(has(result, "HOME=/home/me"));
  EXPECT_TRUE(has(result, "ACCEL_FAILURE_NOTE=/note"));
  EXPECT_EQ(settings(result, "RANK"), 1);
  EXPECT_EQ(settings(result, "TORCHELASTIC_USE_AGENT_STORE"), 0);
  EXPECT_EQ(settings(result, "TORCHELASTIC_ERROR_FILE"), 0);
}

TEST(Environment, SharesTheCoresUnlessTheUserHasSpoken) {
  LaunchOptions options;
  EXPECT_EQ(settings(environment(options, {}), "OMP_NUM_THREADS"), 0);
  options.num_processes = options.world_size = 4096;
  EXPECT_TRUE(has(environment(options, {}), "OMP_NUM_THREADS=1"));
  options.num_processes = options.world_size = 2;
  EXPECT_TRUE(has(
      environment(options, {}),
      "OMP_NUM_THREADS=" + std::to_string(std::max(1, available_cores() / 2))));
  EXPECT_TRUE(
      has(environment(options, {"OMP_NUM_THREADS=7"}), "OMP_NUM_THREADS=7"));
  options.num_threads_per_process = 5;
  EXPECT_TRUE(
      has(environment(options, {"OMP_NUM_THREADS=7"}), "OMP_NUM_THREADS=5"));
}

TEST(Environment, SaysOnlyWhatWasAskedFor) {
  LaunchOptions options;
  const std::vector<std::string> names{
      "ACCELERATE_MIXED_PRECISION",
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
      "ACCELERATE_USE_CPU",
      "ACCEL_MATCH_SINGLE_DEVICE",
      "ACCEL_SPLIT_BATCHES",
      "ACCEL_PLACEMENT_REPORT"};
  for (const std::string& name : names) {
    EXPECT_EQ(settings(environment(options, {}), name), 0) << name;
  }
  options.mixed_precision = "bf16";
  options.gradient_accumulation_steps = 4;
  options.cpu = true;
  options.match_single_device = false;
  options.split_batches = false;
  const Lines result = environment(options, {"ACCEL_MATCH_SINGLE_DEVICE=1"});
  EXPECT_TRUE(has(result, "ACCELERATE_MIXED_PRECISION=bf16"));
  EXPECT_TRUE(has(result, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"));
  EXPECT_TRUE(has(result, "ACCELERATE_USE_CPU=true"));
  EXPECT_TRUE(has(result, "ACCEL_MATCH_SINGLE_DEVICE=0"));
  EXPECT_TRUE(has(result, "ACCEL_SPLIT_BATCHES=0"));
}

TEST(Environment, KeepsTheFileOfThePlacementReport) {
  LaunchOptions options;
  // Nobody has asked: what is there stays.
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=0"}),
          "ACCEL_PLACEMENT_REPORT=0"));
  options.placement_report = true;
  EXPECT_TRUE(has(environment(options, {}), "ACCEL_PLACEMENT_REPORT=1"));
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=0"}),
          "ACCEL_PLACEMENT_REPORT=1"));
  EXPECT_TRUE(
      has(environment(options, {"ACCEL_PLACEMENT_REPORT=my.json"}),
          "ACCEL_PLACEMENT_REPORT=my.json"));
}

TEST(LaunchCommand, LeavesTheProgramItsArguments) {
  const Lines program{"./train", "--num-processes", "9", "--", "-n"};
  for (const Lines& before :
       {Lines{"-n", "2"},
        Lines{"-n2", "--"},
        Lines{"--num_processes=2"},
        Lines{"--num-processes", "2", "--"},
        Lines{"--cpu", "--nproc_per_node", "2"}}) {
    Lines arguments = before;
    arguments.insert(arguments.end(), program.begin(), program.end());
    const auto options = parse_launch(arguments);
    ASSERT_TRUE(options);
    EXPECT_EQ(options->num_processes, 2);
    EXPECT_EQ(options->program, program);
  }
}

TEST(LaunchCommand, ReadsEveryOption) {
  const auto options = parse_launch(
      {"--num-processes",
       "3",
       "--mixed_precision",
       "bf16",
       "--gradient-accumulation-steps",
       "4",
       "--cpu",
       "--main-process-port",
       "29500",
       "--per-process-batch",
       "--placement-report",
       "--num-cpu-threads-per-process",
       "2",
       "--output",
       "logs/",
       "--grace-period",
       "2.5",
       "./train"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->num_processes, 3);
  EXPECT_EQ(options->mixed_precision, "bf16");
  EXPECT_EQ(options->gradient_accumulation_steps, 4);
  EXPECT_TRUE(options->cpu);
  EXPECT_EQ(options->main_process_port, 29500);
  EXPECT_EQ(options->match_single_device, std::nullopt);
  EXPECT_EQ(options->split_batches, false);
  const auto split = parse_launch({"--match-single-device", "./a"});
  EXPECT_EQ(split->match_single_device, true);
  EXPECT_EQ(split->split_batches, true);
  EXPECT_TRUE(options->placement_report);
  EXPECT_FALSE(parse_launch({"./a"})->placement_report);
  EXPECT_EQ(options->num_threads_per_process, 2);
  EXPECT_EQ(options->output, OutputMode::kFiles);
  EXPECT_EQ(options->output_directory, "logs/");
  EXPECT_EQ(options->grace_period, 2.5);
}

TEST(LaunchCommand, ReadsHowTheOutputIsShown) {
  EXPECT_EQ(parse_launch({"./a"})->output, OutputMode::kAll);
  EXPECT_EQ(parse_launch({"-n", "2", "./a"})->output, OutputMode::kAll);
  const std::map<std::string, OutputMode> modes{
      {"all", OutputMode::kAll},
      {"main", OutputMode::kMain},
      {"prefix", OutputMode::kPrefix},
      {"plain", OutputMode::kPlain}};
  for (const auto& [name, mode] : modes) {
    EXPECT_EQ(parse_launch({"--output", name, "./a"})->output, mode) << name;
  }
}

TEST(LaunchCommand, OneHostMaySayWhereHostsMeet) {
  const auto options = parse_launch(
      {"--num_machines", "1", "--machine_rank", "0", "--main_process_ip", "127.0.0.1", "-n", "2", "./a"});
  EXPECT_EQ(options->num_machines, 1);
  EXPECT_EQ(options->num_processes, 2);
}

TEST(LaunchCommand, RefusesWhatMakesNoSense) {
  const auto says = [](const Lines& arguments, const std::string& text) {
    const std::string message = usage_error(arguments);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  says({"--num-proceses", "2", "./a"}, "did you mean --num-processes?");
  says({"--multi_gpu", "./a"}, "unknown option --multi_gpu (leave it out: -n N");
  says({"--rdzv-backend", "static", "./a"}, "hosts meet at --main-process-ip");
  says({"--log_dir", "logs", "./a"}, "(--tee DIR/, or --output DIR/)");
  says({"--num-processes", "0", "./a"}, "0 is not a whole number from 1");
  says({"--num-processes", "two", "./a"}, "two");
  says({"--mixed-precision", "fp61", "./a"}, "fp61");
  says({"--main-process-port", "65536", "./a"}, "65536");
  says({"--match-single-device", "--per-process-batch", "./a"}, "excludes");
  says({"--output", "mian", "./a"}, "did you mean main?");
  says({"-n", "2", "-n", "3", "./a"}, "--num-processes");
  says({"--cpu", "--mixed-precision", "fp16", "./a"}, "on the CPU bf16 does");
  says({"--cpu", "--gpu-ids", "0", "./a"}, "makes no sense with --cpu");
  says(
      {"-n", "2", "--nproc-per-node", "3", "./a"},
      "--num-processes 2 counts the processes on all hosts together, and "
      "--nproc-per-node 3 makes 3 of them");
  says({"-n", "2"}, "which program?");
  says({"-n", "2", "--"}, "which program?");
  says({"-n"}, "--num-processes");
}

TEST(Port, IsFreeAndKept) {
  const Port one(0);
  const Port other(0);
  EXPECT_GT(one.number(), 0);
  EXPECT_NE(one.number(), other.number());
}

} // namespace
} // namespace accel::launcher
