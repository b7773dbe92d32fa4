// A world of processes over a device that needs no hardware (made_up_device.h).

#include "made_up_device.h"

#include "../exchanges.h"
#include "../expectations.h"
#include "../multiprocess.h"

#include "core/world.h"

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

using accel::detail::Channel;
using accel::detail::Environment;
using accel::detail::Placement;
using accel::detail::World;
using accel::test::contains;
using accel::test::MadeUpDevice;

namespace {

int64_t number_of(const char* name) {
  return std::atoll(std::getenv(name));
}

Environment environment() {
  Environment result;
  result.rank = result.local_rank = number_of("RANK");
  result.world_size = result.local_world_size = number_of("WORLD_SIZE");
  result.master_addr = std::getenv("MASTER_ADDR");
  result.master_port = static_cast<uint16_t>(number_of("MASTER_PORT"));
  return result;
}

std::unique_ptr<World> connect(const Placement& placement) {
  return accel::detail::make_process_world(
      environment(),
      placement,
      std::chrono::seconds(30));
}

/// Each process with a device of its own.
std::string own_identity() {
  return "device-" + std::to_string(number_of("RANK"));
}

/// What `call` throws.
template <typename F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

constexpr std::array<Channel, 3> kChannels{
    Channel::kMain,
    Channel::kGradients,
    Channel::kOperators};

/// Every operation with tensors that the device has and that it has not.
void try_everything(accel::detail::Communicator& comm) {
  const int64_t rank = comm.rank();
  const int64_t size = comm.size();
  for (const auto type :
       {torch::kFloat,
        torch::kDouble,
        torch::kHalf,
        torch::kLong,
        torch::kInt}) {
    auto sum = torch::full({3}, rank + 1).to(type);
    comm.all_reduce(sum);
    EXPECT_TRUE(sum.eq(size * (size + 1) / 2).all().item<bool>()) << sum;
  }
  for (const auto type :
       {torch::kFloat, torch::kBFloat16, torch::kBool, torch::kShort}) {
    const auto mine = torch::full({2, 2}, rank).to(type);
    // Not contiguous, and empty.
    const auto all = comm.all_gather(mine.t());
    ASSERT_EQ(all.size(), static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_TRUE(torch::equal(all[i], torch::full({2, 2}, i).to(type)));
    }
    EXPECT_EQ(comm.all_gather(mine.narrow(0, 0, 0))[1].numel(), 0);
    for (int64_t source = 0; source < size; ++source) {
      auto whole = torch::full({2, 3}, rank).to(type);
      auto column = whole.select(1, 1); // not contiguous
      comm.broadcast(column, source);
      auto expected = torch::full({2, 3}, rank).to(type);
      expected.select(1, 1).fill_(source);
      EXPECT_TRUE(torch::equal(whole, expected)) << whole;
    }
  }
  for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kBool}) {
    for (const int64_t count : {0, 1, 7}) {
      accel::test::expect_exchange(comm, type, count);
    }
  }
  comm.barrier();
}

} // namespace

ACCEL_RANK_FUNCTION(device_carries_what_it_takes) {
  const MadeUpDevice device;
  const auto backend = device.backend(own_identity());
  Placement placement;
  placement.backend = &backend;
  const auto world = connect(placement);
  // What operators exchange is read on the device only, see below.
  for (const auto channel : {Channel::kMain, Channel::kGradients}) {
    try_everything(world->communicator(channel));
  }
  // Three dtypes of five were reduced on the device, two of four gathered, two of
  // three exchanged where there was something to send.
  for (const std::string name : {"main", "gradients"}) {
    EXPECT_EQ(device.count("make accel_" + name), 1);
    EXPECT_EQ(device.count("allreduce accel_" + name), 3);
    EXPECT_EQ(device.count("allgather accel_" + name), 2);
    EXPECT_EQ(device.count("alltoall accel_" + name), 4);
    EXPECT_EQ(
        device.count("broadcast accel_" + name),
        2 * number_of("WORLD_SIZE"));
  }
  world->leave();
  // In order, and not as after a failure.
  const auto events = device.events();
  const std::vector<std::string> last(events.end() - 6, events.end());
  EXPECT_EQ(
      last,
      (std::vector<std::string>{
          "wait",
          "shutdown accel_main",
          "wait",
          "shutdown accel_gradients",
          "wait",
          "shutdown accel_operators"}));
  EXPECT_EQ(device.count("abort accel_main"), 0);
}

// A GPU's work is not done when c10d's wait returns.
ACCEL_RANK_FUNCTION(results_are_there_when_a_call_returns) {
  const MadeUpDevice device;
  const auto backend = device.backend(own_identity());
  Placement placement;
  placement.backend = &backend;
  const auto world = connect(placement);
  for (const auto channel : {Channel::kMain, Channel::kGradients}) {
    auto& comm = world->communicator(channel);
    auto sum = torch::ones({4});
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    comm.all_reduce(sum);
    EXPECT_TRUE(sum.eq(2).all().item<bool>()) << sum;
  }
  // Operators wait on the device only: no host stops in forward.
  const auto waits = device.count("wait");
  auto statistics = torch::ones({4});
  world->communicator(Channel::kOperators).all_reduce(statistics);
  EXPECT_EQ(device.count("wait"), waits);
  // A barrier means that the devices have come as far, too.
  world->communicator(Channel::kMain).barrier();
  EXPECT_TRUE(statistics.eq(2).all().item<bool>());
  world->leave();
}

ACCEL_RANK_FUNCTION(two_processes_have_one_device) {
  const MadeUpDevice device;
  const auto backend = device.backend("GPU-1234");
  Placement placement;
  placement.backend = &backend;
  const auto error = error_of([&] { connect(placement); });
  EXPECT_TRUE(contains(error, "processes 0 and 1 compute on the same device"))
      << error;
  EXPECT_TRUE(contains(error, "GPU-1234")) << error;
  EXPECT_EQ(device.count("make accel_main"), 0);
}

ACCEL_RANK_FUNCTION(a_device_cannot_be_connected) {
  const MadeUpDevice device;
  auto backend = device.backend(own_identity());
  backend.make = [](const accel::detail::DeviceGroupRequest&)
      -> c10::intrusive_ptr<c10d::Backend> {
    TORCH_CHECK(false, "ncclSystemError: no route");
  };
  Placement placement;
  placement.backend = &backend;
  const auto error = error_of([&] { connect(placement); });
  for (const std::string part :
       {"could not connect its device",
        "ncclSystemError: no route",
        "The made-up cable is loose."}) {
    EXPECT_TRUE(contains(error, part)) << error;
  }
}

// Process 0 waits on its device for one that waits elsewhere. What the device
// lets go when its group is ended is no result.
ACCEL_RANK_FUNCTION(devices_are_out_of_step) {
  const MadeUpDevice device;
  const auto backend = device.backend(own_identity());
  Placement placement;
  placement.backend = &backend;
  auto world = connect(placement);
  auto& comm = world->communicator(Channel::kMain);
  auto sum = torch::ones({2});
  const auto error = error_of([&] {
    // #1 was at the start.
    if (comm.rank() == 0) {
      comm.all_reduce(sum);
    } else {
      comm.barrier();
    }
  });
  EXPECT_TRUE(contains(error, "all_reduce #2")) << error;
  EXPECT_TRUE(contains(error, "barrier #2")) << error;
  world.reset();
  EXPECT_GE(device.count("abort accel_main"), 1);
  EXPECT_GE(device.count("abort accel_operators"), 1);
  EXPECT_EQ(device.count("shutdown accel_main"), 0);
}

// One that fails tells the others at once, and then ends its device's groups.
ACCEL_RANK_FUNCTION(one_process_gives_up) {
  const MadeUpDevice device;
  const auto backend = device.backend(own_identity());
  Placement placement;
  placement.backend = &backend;
  const auto world = connect(placement);
  if (number_of("RANK") == 1) {
    world->abandon();
    EXPECT_EQ(device.count("abort accel_main"), 1);
    EXPECT_EQ(device.count("shutdown accel_main"), 0);
    return;
  }
  const auto error =
      error_of([&] { world->communicator(Channel::kMain).barrier(); });
  EXPECT_TRUE(contains(error, "barrier #2 failed on process 0 of 2")) << error;
}

// GPUs that share a host's Gloo: floats are copied there and back.
ACCEL_RANK_FUNCTION(gloo_carries_copies) {
  Placement placement;
  int64_t asked = 0;
  placement.staged = [&](const at::Tensor& tensor) {
    ++asked;
    return tensor.is_floating_point();
  };
  const auto world = connect(placement);
  for (const auto channel : kChannels) {
    try_everything(world->communicator(channel));
  }
  EXPECT_GT(asked, 0);
  // The tensor stays untouched until somebody waits.
  auto& comm = world->communicator(Channel::kGradients);
  auto sum = torch::ones({4}).narrow(0, 0, 2);
  const auto wait = comm.all_reduce_async(sum);
  world->communicator(Channel::kMain).barrier();
  EXPECT_TRUE(sum.eq(1).all().item<bool>());
  wait();
  EXPECT_TRUE(sum.eq(number_of("WORLD_SIZE")).all().item<bool>());
  world->leave();
}

TEST(DeviceWorld, CarriesWhatTheDeviceHas) {
  accel::test::run_and_expect_success("device_carries_what_it_takes", 2);
  accel::test::run_and_expect_success("device_carries_what_it_takes", 3);
}

TEST(DeviceWorld, ResultsAreThereWhenACallReturns) {
  accel::test::run_and_expect_success(
      "results_are_there_when_a_call_returns",
      2);
}

TEST(DeviceWorld, SaysWhatIsWrongAtTheStart) {
  accel::test::run_and_expect_success("two_processes_have_one_device", 2);
  accel::test::run_and_expect_success("a_device_cannot_be_connected", 2);
}

TEST(DeviceWorld, EndsWhatHangsOnADevice) {
  accel::test::RunOptions options;
  options.environment["ACCEL_STALL_TIMEOUT"] = "1";
  accel::test::run_and_expect_success("devices_are_out_of_step", 2, options);
}

TEST(DeviceWorld, GivesUpAtOnce) {
  accel::test::run_and_expect_success("one_process_gives_up", 2);
}

TEST(DeviceWorld, GlooCarriesCopies) {
  accel::test::run_and_expect_success("gloo_carries_copies", 2);
}
