// Traces that chrome://tracing reads.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <unistd.h>

namespace {

using accel::Accelerator;
using accel::ProfileOptions;
using accel::ProfileSchedule;
using accel::test::contains;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Which steps a trace has.
std::string steps_in(const std::string& trace) {
  std::string steps;
  for (int step = 0; step < 10; ++step) {
    if (contains(trace, "ProfilerStep#" + std::to_string(step))) {
      steps += std::to_string(step);
    }
  }
  return steps;
}

void work() {
  torch::matmul(torch::ones({4, 4}), torch::ones({4, 4}));
}

} // namespace

ACCEL_RANK_FUNCTION(profiles) {
  const std::filesystem::path folder = std::getenv("TEST_FOLDER");
  Accelerator accelerator;
  const auto rank = std::to_string(accelerator.process_index());
  {
    auto profile = accelerator.profile(
        ProfileOptions().output_trace_dir(folder / "whole").record_shapes(true));
    work();
    EXPECT_THROW(
        (void)accelerator.profile(ProfileOptions().output_trace_dir(folder)),
        c10::Error);
  }
  const auto whole = read(folder / "whole" / ("profile_" + rank + ".json"));
  EXPECT_TRUE(contains(whole, "aten::matmul"));
  EXPECT_TRUE(contains(whole, "[[4, 4], [4, 4]]")) << whole;

  // Two products of 4 x 4 matrices: a multiplication and an addition for each of 64
  // pairs of numbers.
  {
    auto profile = accelerator.profile(
        ProfileOptions().output_trace_dir(folder / "flops").with_flops(true));
    work();
    work();
  }
  const auto counted = nlohmann::json::parse(
      read(folder / "flops" / ("profile_" + rank + ".json")));
  EXPECT_EQ(
      counted.at("flops"),
      nlohmann::json::parse(
          R"([{"name": "aten::mm", "calls": 2, "flops": 256}])"));
  EXPECT_FALSE(counted.at("traceEvents").empty());

  // Steps 0 | 1 2 3 | 4 5 6 | 7 8: skipped, wait warm-up record, twice.
  std::vector<std::string> ready;
  auto profile = accelerator.profile(
      ProfileOptions()
          .output_trace_dir(folder / "cycles")
          .schedule(
              ProfileSchedule().skip_first(1).wait(1).warmup(1).active(1).repeat(
                  2))
          .on_trace_ready(
              [&](const std::string& path) { ready.push_back(path); }));
  for (int step = 0; step < 9; ++step) {
    work();
    profile.step();
  }
  EXPECT_EQ(ready.size(), 2u); // before the end
  profile.stop();
  EXPECT_THROW(profile.step(), c10::Error);
  ASSERT_EQ(profile.files(), ready);
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(
      std::filesystem::path(ready[1]).filename(), "profile_" + rank + "_1.json");
  EXPECT_EQ(steps_in(read(ready[0])), "3");
  EXPECT_EQ(steps_in(read(ready[1])), "6");
  EXPECT_TRUE(contains(read(ready[1]), "aten::matmul"));

  // Ended in the middle of a cycle.
  std::string last;
  {
    auto open = accelerator.profile(
        ProfileOptions()
            .schedule(ProfileSchedule().warmup(1).active(5))
            .on_trace_ready(
                [&](const std::string& path) { last = read(path); }));
    work();
    open.step();
    work();
    open.step();
    work();
  }
  EXPECT_EQ(steps_in(last), "12");
}

TEST(Profile, WritesTracesAsScheduled) {
  const auto folder = std::filesystem::temp_directory_path() /
      ("accel-profile-" + std::to_string(::getpid()));
  accel::test::RunOptions options;
  options.environment["TEST_FOLDER"] = folder.string();
  accel::test::run_and_expect_success("profiles", 2, options);
  std::filesystem::remove_all(folder);
}

ACCEL_RANK_FUNCTION(profiles_distributed_tensors) {
  const std::filesystem::path folder = std::getenv("TEST_FOLDER");
  Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  {
    auto profile = accelerator.profile(
        ProfileOptions().output_trace_dir(folder).record_shapes(true).with_flops(true));
    const auto x = accelerator.distribute(torch::ones({6, 4}));
    torch::mm(x, torch::ones({4, 4}));
  }
  const auto trace = read(
      folder / ("profile_" + std::to_string(accelerator.process_index()) + ".json"));
  EXPECT_TRUE(contains(trace, "aten::mm"));
}

TEST(Profile, OfDistributedTensorsHasNoShapes) {
  const auto folder = std::filesystem::temp_directory_path() /
      ("accel-profile-" + std::to_string(::getpid()));
  accel::test::RunOptions options;
  options.environment["TEST_FOLDER"] = folder.string();
  const auto results =
      accel::test::run_and_expect_success("profiles_distributed_tensors", 2, options);
  EXPECT_TRUE(contains(results[0].error, "record_shapes and with_flops are left out"));
  EXPECT_FALSE(contains(results[0].error, "the memory of a distributed tensor"));
  EXPECT_FALSE(contains(results[0].error, "INTERNAL ASSERT"));
  std::filesystem::remove_all(folder);
}

TEST(Profile, WhatCannotBeIsRefused) {
  Accelerator accelerator;
  EXPECT_THROW((void)accelerator.profile(), c10::Error);
  EXPECT_THROW(
      (void)accelerator.profile(
          ProfileOptions().output_trace_dir("trace").schedule(
              ProfileSchedule().active(0))),
      c10::Error);
  EXPECT_FALSE(std::filesystem::exists("trace"));
}
