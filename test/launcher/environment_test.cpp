// What a process is started with, and how a launch ends well.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

bool contains(const Strings& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

/// A launch without what the tests' own environment may say.
Surroundings clean() {
  Surroundings surroundings;
  surroundings.environment = {{"OMP_NUM_THREADS", ""}};
  return surroundings;
}

TEST(Launch, GivesEveryProcessTorchrunsEnvironment) {
  const Strings names{
      "RANK",
      "LOCAL_RANK",
      "ROLE_RANK",
      "GROUP_RANK",
      "WORLD_SIZE",
      "LOCAL_WORLD_SIZE",
      "ROLE_WORLD_SIZE",
      "GROUP_WORLD_SIZE",
      "ROLE_NAME",
      "MASTER_ADDR",
      "TORCHELASTIC_RESTART_COUNT",
      "TORCHELASTIC_MAX_RESTARTS",
      "TORCHELASTIC_USE_AGENT_STORE"};
  Strings actions;
  for (const std::string& name : names) {
    actions.insert(actions.end(), {"env", name});
  }
  Surroundings surroundings = clean();
  surroundings.environment["RANK"] = "8";
  surroundings.environment["WORLD_SIZE"] = "9";
  surroundings.environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  for (int count : {1, 3}) {
    const Result result = accel(
        launch_probe(
            {"--num-processes", std::to_string(count), "--output", "prefix"},
            actions),
        surroundings);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const Strings lines = split_lines(result.out);
    EXPECT_EQ(lines.size(), names.size() * static_cast<size_t>(count));
    const std::string world = std::to_string(count);
    for (int rank = 0; rank < count; ++rank) {
      const std::string number = std::to_string(rank);
      for (const std::string& entry :
           {"RANK=" + number,
            "LOCAL_RANK=" + number,
            "ROLE_RANK=" + number,
            std::string("GROUP_RANK=0"),
            "WORLD_SIZE=" + world,
            "LOCAL_WORLD_SIZE=" + world,
            "ROLE_WORLD_SIZE=" + world,
            std::string("GROUP_WORLD_SIZE=1"),
            std::string("ROLE_NAME=default"),
            std::string("MASTER_ADDR=127.0.0.1"),
            std::string("TORCHELASTIC_RESTART_COUNT=0"),
            std::string("TORCHELASTIC_MAX_RESTARTS=0"),
            std::string("TORCHELASTIC_USE_AGENT_STORE is unset")}) {
        EXPECT_TRUE(contains(lines, "[" + number + "] " + entry)) << entry;
      }
    }
  }
}

TEST(Launch, AgreesOnAPortAndARunId) {
  const Result result = accel(launch_probe(
      {"-n", "3", "--output", "plain"},
      {"env", "MASTER_PORT", "env", "TORCHELASTIC_RUN_ID"}));
  const Strings lines = split_lines(result.out);
  EXPECT_EQ(lines.size(), 6u);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 2u);
}

TEST(Launch, KeepsTheChosenPortForTheStore) {
  // Process 0 listens as c10d's store does, while the launcher holds on to it.
  const Result result =
      accel(launch_probe({"-n", "2"}, {"if", "0", "listen", "out", "fine\n"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "fine\n");
}

TEST(Launch, PassesOptionsOnThroughTheEnvironment) {
  const Result result = accel(
      launch_probe(
          {"--mixed_precision",
           "bf16",
           "--gradient_accumulation_steps=4",
           "--cpu",
           "--match-single-device",
           "--placement-report",
           "--num-threads-per-process",
           "3"},
          {"env",
           "ACCELERATE_MIXED_PRECISION",
           "env",
           "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
           "env",
           "ACCELERATE_USE_CPU",
           "env",
           "ACCEL_MATCH_SINGLE_DEVICE",
           "env",
           "ACCEL_PLACEMENT_REPORT",
           "env",
           "OMP_NUM_THREADS"}),
      clean());
  EXPECT_EQ(
      result.out,
      "ACCELERATE_MIXED_PRECISION=bf16\n"
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4\n"
      "ACCELERATE_USE_CPU=true\n"
      "ACCEL_MATCH_SINGLE_DEVICE=1\n"
      "ACCEL_PLACEMENT_REPORT=1\n"
      "OMP_NUM_THREADS=3\n");
}

TEST(Launch, LeavesTheProgramItsArguments) {
  Strings command =
      launch_probe({"-n", "1"}, {"args", "--cpu", "--", "-n", ""});
  EXPECT_EQ(accel(command).out, "--cpu\n--\n-n\n\n");
  command.erase(std::find(command.begin(), command.end(), "--"));
  EXPECT_EQ(accel(command).out, "--cpu\n--\n-n\n\n");
}

TEST(Launch, FindsTheProgramInThePath) {
  const Result result = accel({"launch", "sh", "-c", "echo $WORLD_SIZE"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "1\n");
}

TEST(Launch, GivesStandardInputToProcessZero) {
  Surroundings surroundings;
  surroundings.input = "some input\n";
  const Result result =
      accel(launch_probe({"-n", "2"}, {"stdin", "out", "end\n"}), surroundings);
  Strings lines = split_lines(result.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (Strings{"[1] end", "end", "some input"}));
}

TEST(Command, HelpsAndNamesItsVersion) {
  for (const Strings& arguments :
       {Strings{"--help"},
        Strings{"launch", "--help"},
        Strings{"flags", "-h"}}) {
    const Result result = accel(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out.find("Examples:"), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
  }
  EXPECT_EQ(accel({"--version"}).out, "accel " ACCEL_VERSION "\n");
}

TEST(Command, SuggestsWhatWasMeant) {
  const auto refuses = [](const Strings& arguments, const std::string& text) {
    const Result result = accel(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  };
  refuses({"lanch", "./train"}, "did you mean launch?");
  refuses({"--verison"}, "did you mean --version?");
  refuses(
      {"launch", "--num-proces", "2", "x"}, "did you mean --num-processes?");
  refuses({"flags", "--complie"}, "did you mean --compile?");
  refuses({"launch"}, "which program?");
  refuses({}, "Usage: accel COMMAND");
}

} // namespace
