// Which device a process gets, decided from numbers alone.

#include "../expectations.h"

#include "device/choice.h"

#include <c10/util/Exception.h>

#include <gtest/gtest.h>

using accel::detail::check_devices_differ;
using accel::detail::choose_device;
using accel::detail::DeviceSituation;
using accel::detail::Transport;
using accel::test::contains;

namespace {

/// Local rank 1 of 2 with 2 GPUs and NCCL.
DeviceSituation two_of_two() {
  DeviceSituation situation;
  situation.visible = 2;
  situation.local_rank = 1;
  situation.local_world_size = 2;
  situation.world_size = 2;
  return situation;
}

void expect_refused(
    const DeviceSituation& situation,
    const std::vector<std::string>& parts) {
  try {
    const auto choice = choose_device(situation);
    ADD_FAILURE() << "chosen: " << choice.device.str();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    for (const auto& part : parts) {
      EXPECT_TRUE(contains(message, part)) << message << "\nlacks: " << part;
    }
  }
}

} // namespace

TEST(DeviceChoice, GivesEachLocalRankItsGpu) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    auto situation = two_of_two();
    situation.visible = 8; // more than are needed
    situation.local_world_size = 4;
    situation.world_size = 16; // on four hosts
    situation.local_rank = rank;
    const auto choice = choose_device(situation);
    EXPECT_EQ(
        choice.device,
        c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank)));
    EXPECT_EQ(choice.transport, Transport::kDevice);
  }
}

TEST(DeviceChoice, TakesTheOnlyGpuThatABatchSystemShows) {
  auto situation = two_of_two();
  situation.visible = 1;
  const auto choice = choose_device(situation);
  EXPECT_EQ(choice.device, c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(choice.transport, Transport::kDevice);
}

TEST(DeviceChoice, StaysOnTheCpuWhereItMustOrShall) {
  auto situation = two_of_two();
  situation.visible = 0;
  situation.without_backend = "not there";
  EXPECT_EQ(choose_device(situation).device, c10::Device(c10::kCPU));
  EXPECT_EQ(choose_device(situation).transport, Transport::kGloo);
  situation.visible = 2;
  situation.cpu = true;
  EXPECT_EQ(choose_device(situation).device, c10::Device(c10::kCPU));
}

TEST(DeviceChoice, OneProcessNeedsNoNccl) {
  auto situation = two_of_two();
  situation.world_size = situation.local_world_size = 1;
  situation.local_rank = 0;
  situation.without_backend = "not there";
  EXPECT_EQ(choose_device(situation).device, c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(choose_device(situation).transport, Transport::kGloo);
}

TEST(DeviceChoice, GlooSharesGpusWhereItIsAskedFor) {
  auto situation = two_of_two();
  situation.visible = 2;
  situation.local_world_size = situation.world_size = 5;
  situation.local_rank = 3;
  situation.without_backend = "not there";
  situation.backend = "gloo";
  EXPECT_EQ(choose_device(situation).device, c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(choose_device(situation).transport, Transport::kGloo);
}

TEST(DeviceChoice, MoreProcessesThanGpusIsAnError) {
  auto situation = two_of_two();
  situation.local_world_size = situation.world_size = 3;
  situation.visible_devices = "4,5";
  // Also on the processes that would have one.
  for (int64_t rank = 0; rank < 3; ++rank) {
    situation.local_rank = rank;
    expect_refused(
        situation,
        {"3 processes on this host",
         "2 GPUs (CUDA_VISIBLE_DEVICES=4,5)",
         "accel launch -n 2",
         "ACCELERATE_USE_CPU=1",
         "ACCEL_BACKEND=gloo"});
  }
}

TEST(DeviceChoice, SaysWhyThereIsNoNccl) {
  auto situation = two_of_two();
  situation.without_backend = "libaccel_nccl.so is not there";
  expect_refused(
      situation,
      {"2 processes on GPUs need NCCL",
       "libaccel_nccl.so is not there",
       "ACCELERATE_USE_CPU=1",
       "ACCEL_BACKEND=gloo"});
}

TEST(DeviceChoice, RefusesBackendsThatMakeNoSense) {
  auto situation = two_of_two();
  situation.backend = "mpi";
  expect_refused(situation, {"ACCEL_BACKEND is 'mpi'", "nccl or gloo"});
  situation.backend = "nccl";
  situation.cpu = true;
  expect_refused(
      situation,
      {"ACCEL_BACKEND is nccl", "CPU", "ACCELERATE_USE_CPU"});
  situation.cpu = false;
  situation.visible = 0;
  situation.visible_devices = "-1";
  expect_refused(
      situation,
      {"ACCEL_BACKEND is nccl",
       "0 GPUs (CUDA_VISIBLE_DEVICES=-1)",
       "nvidia-smi"});
}

TEST(DeviceChoice, TwoProcessesOnOneGpuIsAnError) {
  EXPECT_NO_THROW(check_devices_differ({"GPU-a", "GPU-b", "GPU-c"}));
  try {
    check_devices_differ({"GPU-a", "GPU-b", "GPU-c", "GPU-b"});
    ADD_FAILURE() << "accepted";
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_TRUE(contains(message, "processes 1 and 3")) << message;
    EXPECT_TRUE(contains(message, "GPU-b")) << message;
    EXPECT_TRUE(contains(message, "CUDA_VISIBLE_DEVICES")) << message;
  }
}
