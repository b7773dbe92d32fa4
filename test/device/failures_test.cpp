// Devices that fail or wait for ever, and collectives of which their library
// reports an error: who notices, and what it says.

#include "training.h"

#include <chrono>
#include <csignal>
#include <stdexcept>

namespace sim = accel::sim;
using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::contains;
using namespace accel::sim::test;

ACCEL_RANK_FUNCTION(sim_device_fails) {
  Training training(matching());
  training.step(0);
  if (training.accelerator.process_index() == 1) {
    sim::give(stream_of(training.accelerator), "a wrong kernel", [] {
      throw std::runtime_error("an illegal address");
    });
  }
  training.step(1);
  training.step(2);
}

TEST(SimTraining, ADeviceThatFailsIsNamed) {
  for (const int count : counts({2}, 2)) {
    const auto results =
        accel::test::run("sim_device_fails", count, devices(count));
    for (const auto& result : results) {
      EXPECT_FALSE(result.timed_out);
      EXPECT_EQ(result.exit_code, 1) << result.error;
    }
    EXPECT_TRUE(contains(results[1].error, "sim:1 has failed"))
        << results[1].error;
    EXPECT_TRUE(contains(results[1].error, "an illegal address"))
        << results[1].error;
    EXPECT_TRUE(contains(results[0].error, "process 1")) << results[0].error;
  }
}

// Process 1 does not come; process 0 waits with what its device has.
ACCEL_RANK_FUNCTION(sim_hangs) {
  Accelerator accelerator(matching());
  const auto mine = torch::ones({3}, accelerator.device());
  accelerator.reduce(mine);
  if (accelerator.is_main_process()) {
    accelerator.reduce(mine);
  }
  accelerator.wait_for_everyone();
}

TEST(SimTraining, WhoDoesNotComeIsNamed) {
  for (const int count : counts({2}, 2)) {
    auto options = devices(count);
    options.environment["ACCEL_STALL_TIMEOUT"] = "2";
    accel::test::expect_all_fail(
        accel::test::run("sim_hangs", count, options),
        {"the processes are out of step", "process 0 has waited",
         "process 1 has waited", "in barrier #"});
  }
}

// The gradients of process 1 do not come, and nothing has been compared over Gloo
// (each process has a batch of its own): only the device of process 0 waits, and
// only the end of its group lets it go.
ACCEL_RANK_FUNCTION(sim_gradients_do_not_come) {
  Training training{AcceleratorOptions()};
  const auto x = inputs(0).to(training.accelerator.device());
  const auto backward = [&] {
    training.accelerator.backward(training.net->forward(x).pow(2).mean());
  };
  backward();
  if (training.accelerator.is_main_process()) {
    backward();
  }
  training.accelerator.wait_for_everyone();
}

TEST(SimTraining, WhatWaitsOnADeviceIsEnded) {
  for (const int count : counts({2}, 2)) {
    auto options = devices(count);
    options.timeout = std::chrono::seconds(25);
    options.environment["ACCEL_STALL_TIMEOUT"] = "1";
    accel::test::expect_all_fail(
        accel::test::run("sim_gradients_do_not_come", count, options),
        {"the processes are out of step", "in all_reduce #", "in barrier #"});
  }
}

// What NCCL reports of a collective, and when: in the call, where the host waits
// for it, or never, until its time is up.
ACCEL_RANK_FUNCTION(sim_backend_fails) {
  Training training(matching().timeout(std::chrono::seconds(4)));
  for (int64_t i = 0; i < 4; ++i) {
    training.step(i);
  }
}

static std::vector<accel::test::RankResult> with_backend_error(
    const std::string& kind,
    int count) {
  auto options = devices(count);
  options.timeout = std::chrono::seconds(25);
  options.environment["ACCEL_SIM_ERROR"] = "1 accel_gradients 3 " + kind;
  return accel::test::run("sim_backend_fails", count, options);
}

TEST(SimTraining, ErrorsOfACollectiveAreNamed) {
  for (const int count : counts({2}, 2)) {
    for (const std::string kind : {"call", "work"}) {
      const auto results = with_backend_error(kind, count);
      for (const auto& result : results) {
        EXPECT_FALSE(result.timed_out) << kind;
        EXPECT_EQ(result.exit_code, 1) << kind << result.error;
      }
      for (const auto& part :
           {std::string("all_reduce #"),
            "failed on process 1 of " + std::to_string(count),
            std::string("ncclRemoteError")}) {
        EXPECT_TRUE(contains(results[1].error, part))
            << kind << ": " << part << "\n" << results[1].error;
      }
      EXPECT_TRUE(contains(results[0].error, "all_reduce #"))
          << kind << results[0].error;
    }
  }
}

TEST(SimTraining, ACollectiveThatNeverEndsIsEnded) {
  for (const int count : counts({2}, 2)) {
    for (const auto& result : with_backend_error("time", count)) {
      EXPECT_FALSE(result.timed_out);
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_TRUE(contains(result.error, "all_reduce #")) << result.error;
    }
  }
}

// NCCL's watchdog finds an error while nobody waits for the operation, and ends the
// process from its own thread; the others notice that it is gone when their time is up
// (or are ended by the launcher, which there is none of here).
TEST(SimTraining, AnAsynchronousErrorEndsTheProcess) {
  for (const int count : counts({2}, 2)) {
    const auto results = with_backend_error("thread", count);
    for (const auto& result : results) {
      EXPECT_FALSE(result.timed_out) << result.error;
      EXPECT_FALSE(result.success());
    }
    EXPECT_EQ(results[1].signal, SIGABRT) << results[1].error;
    EXPECT_TRUE(contains(results[1].error, "ncclRemoteError")) << results[1].error;
    EXPECT_TRUE(contains(results[0].error, "another process has probably ended"))
        << results[0].error;
  }
}
