// A job that is killed and started again: not a bit is another.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "subject_runs.h"

namespace {

TEST(Faults, TwentyKillsChangeNotABit) {
  const Folder folder;
  Running running(
      command(launch(
          {"--output", "main", "--max-restarts", "60", "--resume", "auto"},
          {"kill", "20"})),
      in(folder));
  const Result result = running.wait(150);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, undisturbed());
  EXPECT_GE(lines_in(folder, "kills"), 20u);
  // It saves after every step: at most the one that was under way is lost.
  int starts = 0;
  int step = 0;
  for (const std::string& line : split_lines(folder.read("log"))) {
    const int number = std::stoi(line.substr(line.find(' ')));
    if (line.rfind("start", 0) == 0) {
      EXPECT_GE(number, step - 1);
      EXPECT_LE(number, step);
      ++starts;
    }
    step = number;
  }
  EXPECT_GT(starts, 5);
  EXPECT_EQ(step, 300);
  std::cout << lines_in(folder, "kills") << " kills, " << starts
            << " starts that came to train, " << result.seconds << " s\n";
}

class KillsInParts : public testing::TestWithParam<const char*> {};

/// Processes are killed while the others gather a weight of 4 MB from them, or
/// scatter its gradient: nobody hangs, and the numbers are those without kills.
TEST_P(KillsInParts, ChangeNotABit) {
  const auto with_parts = [](const Folder& folder) {
    Surroundings surroundings = in(folder);
    surroundings.environment["ACCELERATE_USE_FSDP"] = "true";
    surroundings.environment["FSDP_SHARDING_STRATEGY"] = GetParam();
    surroundings.environment["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT";
    surroundings.environment["FAULTS_WIDTH"] = "1024";
    surroundings.environment["FAULTS_EVERY"] = "8";
    return surroundings;
  };
  const Folder other;
  const Result whole = accel(
      launch({"--output", "main"}, {"train", "120"}), with_parts(other));
  EXPECT_EQ(whole.status, 0) << whole.err;
  expect_part(whole.out, "after 120 steps: 0x");
  const Folder folder;
  Running running(
      command(launch(
          {"--output", "main", "--max-restarts", "60", "--resume", "auto"},
          {"kill", "12", "120"})),
      with_parts(folder));
  const Result result = running.wait(150);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, whole.out);
  EXPECT_GE(lines_in(folder, "kills"), 12u);
  std::cout << lines_in(folder, "kills") << " kills, " << result.seconds << " s\n";
}

INSTANTIATE_TEST_SUITE_P(
    Strategies,
    KillsInParts,
    testing::Values("FULL_SHARD"),
    [](const auto& info) { return std::string(info.param); });

class StopSignal : public testing::TestWithParam<int> {};

TEST_P(StopSignal, SavesAndGoesOn) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  const Folder other;
  const Result whole =
      accel(launch({"--output", "main"}, {"stop"}), in(other));
  Running running(
      command(launch(
          {"--output", "main", "--resume", "auto", "--max-restarts", "3"},
          {"stop"})),
      surroundings);
  ASSERT_TRUE(eventually([&] { return folder.has("begun"); }, 30));
  running.signal(GetParam());
  const Result result = running.wait();
  EXPECT_EQ(result.status, 75) << result.err;
  EXPECT_EQ(result.out, "");
  expect_part(result.err, "after saving (exit code 75)");
  expect_no_part(result.err, "starting all processes again");
  const Result rest = accel(
      launch({"--output", "main", "--resume", "auto"}, {"stop"}), surroundings);
  EXPECT_EQ(rest.status, 0) << rest.err;
  expect_part(rest.out, "after 40 steps: 0x");
  EXPECT_EQ(rest.out, whole.out);
}

INSTANTIATE_TEST_SUITE_P(
    Signals,
    StopSignal,
    testing::Values(SIGTERM, SIGUSR1),
    [](const auto& info) { return sigabbrev_np(info.param); });

TEST(Faults, DamagedCheckpointsArePassedOver) {
  const Folder folder;
  // It saves after every step, and nobody is killed any more.
  std::ofstream(folder / "kills") << "x\n";
  const Strings arguments =
      launch({"--output", "main", "--resume", "auto"}, {"kill", "1", "10"});
  const Result whole = accel(arguments, in(folder));
  EXPECT_EQ(whole.status, 0) << whole.err;
  expect_part(whole.out, "after 10 steps: 0x");
  // Step 10 is checkpoint 9; two are kept.
  const std::string name = "run/checkpoints/checkpoint_9/model.safetensors";
  std::string bytes = folder.read(name);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(folder / name, std::ios::binary) << bytes;
  const Result result = accel(arguments, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "checkpoint_9' is damaged; going on at '");
  expect_part(result.err, "checkpoint_8'");
  const Strings log = split_lines(folder.read("log"));
  ASSERT_GE(log.size(), 2u);
  EXPECT_EQ(log[log.size() - 2], "start 9");
  EXPECT_EQ(log.back(), "step 10");
  EXPECT_EQ(result.out, whole.out);
}

TEST(Faults, SavingWithoutResumingIsRefused) {
  const Folder folder;
  const Result refused =
      accel(launch({"--resume", "auto"}, {"no-resume"}), in(folder));
  EXPECT_NE(refused.status, 0);
  expect_part(refused.err, "save_state was called before accelerator.resume()");
  EXPECT_EQ(accel(launch({}, {"no-resume"}), in(folder)).status, 0);
}

// ---- Fewer processes.

/// The two numbers behind "after N steps: ".
std::pair<double, double> numbers(const std::string& text, int steps) {
  std::pair<double, double> result;
  const std::string format =
      "after " + std::to_string(steps) + " steps: %la %la";
  EXPECT_EQ(
      std::sscanf(
          text.c_str(), format.c_str(), &result.first, &result.second),
      2)
      << text;
  return result;
}

TEST(Elastic, GoesOnWithoutTheProcessThatKeepsDying) {
  const Folder folder;
  const Result result = accel(
      {"launch", "-n", "3", "--output", "main", "--max-restarts", "5",
       "--min-processes", "2", "--resume", "auto", "--match-single-device",
       "--", build_paths::kFaultsSubject, "doomed", "8"},
      in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(
      result.err,
      "starting 2 processes instead of 3, since rank 2 has failed first twice "
      "in a row and --min-processes 2 allows it (restart 2 of at most 5, from "
      "the newest complete checkpoint)");
  expect_part(
      result.err,
      "What changes with 2 processes instead of 3: a global batch is what it "
      "was, shared by fewer, so that the results are the same but for the last "
      "bits");
  // It says the truth: nobody has died, and there is one process.
  const Folder other;
  const Result alone = accel(
      {"launch", "--output", "main", "--", build_paths::kFaultsSubject, "train", "8"},
      in(other));
  const auto found = numbers(result.out, 8);
  const auto expected = numbers(alone.out, 8);
  EXPECT_NEAR(found.first, expected.first, 1e-5 * std::abs(expected.first));
  EXPECT_NEAR(found.second, expected.second, 1e-5 * std::abs(expected.second));
  // It went on, and did not begin anew.
  Strings starts;
  for (const std::string& line : split_lines(folder.read("log"))) {
    if (line.rfind("start ", 0) == 0) {
      starts.push_back(line);
    }
  }
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_NE(starts[1], "start 0");
  EXPECT_NE(starts[2], starts[1]);
}

// ---- The disk.

TEST(Disk, ThatIsFullIsAnErrorAndLosesNothing) {
  const Folder folder;
  const Folder other;
  const Strings whole =
      launch({"--output", "main", "--resume", "auto"}, {"saving", "8"});
  const Result undisturbed = accel(whole, in(other));
  EXPECT_EQ(
      accel(
          launch({"--output", "main", "--resume", "auto"}, {"saving", "4"}),
          in(folder))
          .status,
      0);
  // No file may be longer than a kilobyte, and nobody is killed for trying.
  Running running(
      in_shell("trap '' XFSZ; ulimit -f 2;", command(whole)), in(folder));
  const Result full = running.wait();
  EXPECT_NE(full.status, 0);
  EXPECT_GT(full.status, 0) << "a signal";
  expect_part(full.err, "File too large");
  expect_part(full.err, "run/checkpoints/");
  const Result rest = accel(whole, in(folder));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.out, undisturbed.out);
  const Strings log = split_lines(folder.read("log"));
  EXPECT_EQ(log.back(), "start 4");
}

TEST(Files, HaveTheModeThatTheUserWants) {
  const Folder folder;
  const mode_t before = umask(027);
  const Result result = accel(
      launch({"--output", "logs/"}, {"no-resume"}), in(folder));
  umask(before);
  EXPECT_EQ(result.status, 0) << result.err;
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.path())) {
    struct stat status;
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(
        status.st_mode & 07777, entry.is_directory() ? 0750u : 0640u)
        << entry.path();
    ++files;
  }
  EXPECT_GT(files, 6);
}

} // namespace
