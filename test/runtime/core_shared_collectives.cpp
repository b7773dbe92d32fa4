// Sums and gatherings between processes of one host, which go through memory
// that they share, beside those over Gloo.

#include "exchanges.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/detail/communicator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::detail::Channel;
using accel::detail::Communicator;
using accel::detail::communicator;
using accel::test::contains;

namespace {

constexpr int64_t kChunk = 1 << 20; // bytes, of the channel for gradients

/// Numbers that every process can make for every other.
torch::Tensor numbers(int64_t rank, int64_t count, torch::ScalarType dtype) {
  static const auto wave =
      torch::sin(torch::arange(2 * kChunk, torch::kFloat) * 0.37);
  // Positive, and small enough for a byte's sum over five processes.
  return (wave.narrow(0, 0, count) * static_cast<double>(rank + 1) + 10)
      .to(dtype);
}

/// What the processes' sum is, added in the order of the ranks.
torch::Tensor expected(int64_t world, int64_t count, torch::ScalarType dtype) {
  auto sum = numbers(0, count, dtype);
  for (int64_t rank = 1; rank < world; ++rank) {
    sum = sum + numbers(rank, count, dtype);
  }
  return sum;
}

/// How much of the host's shared memory this process has mapped that is named
/// as the runtime names it.
bool maps_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (contains(line, "/dev/shm/accel-")) {
      return true;
    }
  }
  return false;
}

accel::test::RunOptions without_shared_memory() {
  accel::test::RunOptions options;
  options.environment = {{"ACCEL_SHARED_MEMORY", "0"}};
  return options;
}

} // namespace

ACCEL_RANK_FUNCTION(sums_of_all_kinds) {
  Accelerator accelerator;
  const int64_t rank = accelerator.process_index();
  const int64_t world = accelerator.num_processes();
  ASSERT_TRUE(maps_shared_memory());
  const auto check = [&](Channel channel, auto dtype, int64_t count) {
    auto sum = numbers(rank, count, dtype);
    communicator(channel).all_reduce(sum);
    EXPECT_TRUE(torch::equal(sum, expected(world, count, dtype)))
        << dtype << " " << count;
  };
  for (const auto dtype :
       {torch::kDouble,
        torch::kFloat,
        torch::kHalf,
        torch::kBFloat16,
        torch::kLong,
        torch::kInt,
        torch::kChar,
        torch::kByte}) {
    const auto in_chunk =
        kChunk / static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t count :
         {int64_t{1}, int64_t{7}, in_chunk / 8 + 1, in_chunk, in_chunk + 5}) {
      check(Channel::kGradients, dtype, count);
    }
  }
  for (const auto channel : {Channel::kMain, Channel::kOperators}) {
    check(channel, torch::kDouble, 3);
    check(channel, torch::kFloat, 100000);
  }
  auto none = torch::empty({0});
  communicator().all_reduce(none);
}

TEST(SharedSum, IsTheSumInTheOrderOfTheRanks) {
  for (const int world : {2, 3, 5}) {
    accel::test::run_and_expect_success("sums_of_all_kinds", world);
  }
}

// Of every length around the pieces in which they travel, bits as they are.
ACCEL_RANK_FUNCTION(gathers_of_all_kinds) {
  Accelerator accelerator;
  const int64_t rank = accelerator.process_index();
  const int64_t world = accelerator.num_processes();
  const auto check = [&](Channel channel, const torch::Tensor& pattern) {
    const auto mine = [&](int64_t of) { return pattern.roll(of); };
    const auto all = communicator(channel).all_gather(mine(rank));
    ASSERT_EQ(static_cast<int64_t>(all.size()), world);
    for (int64_t of = 0; of < world; ++of) {
      EXPECT_EQ(all[of].scalar_type(), pattern.scalar_type());
      EXPECT_TRUE(torch::equal(all[of], mine(of)))
          << pattern.scalar_type() << pattern.sizes();
    }
  };
  constexpr int64_t kSmallChunk = 1 << 16;
  for (const auto channel :
       {Channel::kMain, Channel::kGradients, Channel::kOperators}) {
    for (const auto dtype :
         {torch::kBool,
          torch::kByte,
          torch::kShort,
          torch::kBFloat16,
          torch::kFloat,
          torch::kLong,
          torch::kComplexDouble}) {
      const auto in_chunk =
          kSmallChunk / static_cast<int64_t>(c10::elementSize(dtype));
      for (const int64_t count :
           {int64_t{0},
            int64_t{1},
            int64_t{7},
            in_chunk - 1,
            in_chunk,
            in_chunk + 1,
            3 * in_chunk + 5}) {
        check(channel, torch::arange(count).remainder(251).to(dtype));
      }
    }
    // Not contiguous, and of no dimension.
    check(channel, torch::arange(12, torch::kFloat).view({3, 4}).t());
    check(channel, torch::tensor(5.0));
  }
}

TEST(SharedGather, IsEveryProcesssTensor) {
  for (const int world : {2, 3, 5}) {
    accel::test::run_and_expect_success("gathers_of_all_kinds", world);
  }
}

TEST(SharedGather, OverGlooToo) {
  accel::test::run_and_expect_success(
      "gathers_of_all_kinds", 3, without_shared_memory());
}

// Around the pieces in which they travel.
ACCEL_RANK_FUNCTION(exchanges_of_all_kinds) {
  Accelerator accelerator;
  constexpr int64_t kSmallChunk = 1 << 16;
  for (const auto channel : {Channel::kMain, Channel::kOperators}) {
    for (const auto dtype :
         {torch::kBool, torch::kBFloat16, torch::kDouble, torch::kComplexDouble}) {
      const auto in_chunk =
          kSmallChunk / static_cast<int64_t>(c10::elementSize(dtype));
      for (const int64_t count :
           {int64_t{0}, int64_t{1}, int64_t{7}, in_chunk, 2 * in_chunk + 5}) {
        accel::test::expect_exchange(communicator(channel), dtype, count);
      }
    }
  }
}

TEST(SharedExchange, IsWhatEachProcessSent) {
  for (const int world : {2, 3, 5}) {
    accel::test::run_and_expect_success("exchanges_of_all_kinds", world);
  }
}

TEST(SharedExchange, OverGlooToo) {
  accel::test::run_and_expect_success(
      "exchanges_of_all_kinds", 3, without_shared_memory());
}

// What was started before is done before, whoever waits for it when.
ACCEL_RANK_FUNCTION(gathers_between_sums) {
  Accelerator accelerator;
  const int64_t rank = accelerator.process_index();
  const int64_t world = accelerator.num_processes();
  auto& processes = communicator(Channel::kGradients);
  auto first = numbers(rank, 10, torch::kDouble);
  auto second = numbers(rank, 20, torch::kDouble);
  auto wait_first = processes.all_reduce_async(first);
  auto wait_second = processes.all_reduce_async(second);
  if (rank == 0) {
    wait_second();
  }
  const auto all = processes.all_gather(torch::full({3}, rank));
  for (int64_t of = 0; of < world; ++of) {
    EXPECT_TRUE(torch::equal(all[of], torch::full({3}, of)));
  }
  wait_first();
  if (rank != 0) {
    wait_second();
  }
  EXPECT_TRUE(torch::equal(first, expected(world, 10, torch::kDouble)));
  EXPECT_TRUE(torch::equal(second, expected(world, 20, torch::kDouble)));
}

TEST(SharedGather, KeepsTheOrder) {
  accel::test::run_and_expect_success("gathers_between_sums", 3);
}

ACCEL_RANK_FUNCTION(gathers_differ) {
  Accelerator accelerator;
  const bool first = accelerator.is_main_process();
  communicator().all_gather(torch::ones({first ? 2 : 100000}));
}

TEST(SharedGather, OfDifferentTensorsIsAnError) {
  for (const auto& result : accel::test::run("gathers_differ", 2)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(contains(
        result.error,
        "process 0 is in all_gather #2 of Float [2], called at gathers_differ"))
        << result.error;
    EXPECT_TRUE(contains(
        result.error, "process 1 is in all_gather #2 of Float [100000]"))
        << result.error;
  }
}

ACCEL_RANK_FUNCTION(sums_over_gloo) {
  Accelerator accelerator;
  EXPECT_FALSE(maps_shared_memory());
  const int64_t world = accelerator.num_processes();
  auto sum = numbers(accelerator.process_index(), 1000, torch::kDouble);
  communicator().all_reduce(sum);
  EXPECT_TRUE(torch::allclose(
      sum, expected(world, 1000, torch::kDouble), 1e-14, 1e-14));
  // Small ones travel with what is compared before.
  for (const int64_t count : {0, 1, 10, 511, 512, 3000}) {
    auto operators =
        numbers(accelerator.process_index(), count, torch::kDouble);
    communicator(Channel::kOperators).all_reduce(operators);
    EXPECT_TRUE(torch::allclose(
        operators, expected(world, count, torch::kDouble), 1e-14, 1e-14))
        << count;
  }
}

TEST(SharedSum, CanBeSwitchedOff) {
  accel::test::run_and_expect_success(
      "sums_over_gloo", 3, without_shared_memory());
}

// One process is not allowed to make it: all go over Gloo.
ACCEL_RANK_FUNCTION(one_cannot_have_it) {
  if (std::string(std::getenv("RANK")) == std::getenv("ACCEL_TEST_WITHOUT")) {
    ::setenv("ACCEL_SHARED_MEMORY", "0", 1);
  }
  sums_over_gloo();
}

TEST(SharedSum, IsForAllOrNone) {
  for (const char* rank : {"0", "2"}) {
    accel::test::RunOptions options;
    options.environment = {{"ACCEL_TEST_WITHOUT", rank}};
    accel::test::run_and_expect_success("one_cannot_have_it", 3, options);
  }
}

// As in a container whose /dev/shm is full: files cannot grow.
ACCEL_RANK_FUNCTION(no_memory_left) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit least{1 << 12, 1 << 12};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &least), 0);
  sums_over_gloo();
}

TEST(SharedSum, GoesOnWithoutMemory) {
  accel::test::run_and_expect_success("no_memory_left", 2);
}

ACCEL_RANK_FUNCTION(waits_in_another_order) {
  Accelerator accelerator;
  const int64_t rank = accelerator.process_index();
  const int64_t world = accelerator.num_processes();
  std::vector<torch::Tensor> tensors;
  std::vector<Communicator::Waiter> waiters;
  for (int64_t i = 0; i < 4; ++i) {
    tensors.push_back(numbers(rank, 100 + i, torch::kDouble));
  }
  for (auto& tensor : tensors) {
    waiters.push_back(
        communicator(Channel::kGradients).all_reduce_async(tensor));
  }
  if (rank == 1) { // what was started in the same order
    std::reverse(waiters.begin(), waiters.end());
  }
  for (const auto& wait : waiters) {
    wait();
  }
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(
        torch::equal(tensors[i], expected(world, 100 + i, torch::kDouble)));
  }
}

TEST(SharedSum, MayBeWaitedForInAnyOrder) {
  accel::test::run_and_expect_success("waits_in_another_order", 3);
}

ACCEL_RANK_FUNCTION(sums_differ) {
  Accelerator accelerator;
  const int64_t rank = accelerator.process_index();
  auto tensor = torch::ones({rank == 1 ? 4 : 5});
  communicator().all_reduce(tensor);
}

TEST(SharedSum, OfDifferentTensorsIsAnError) {
  for (const auto& result : accel::test::run("sums_differ", 2)) {
    EXPECT_EQ(result.exit_code, 1);
    for (const char* part :
         {"the processes are out of step",
          "process 0 is in all_reduce #2 of Float [5], called at sums_differ",
          "process 1 is in all_reduce #2 of Float [4], called at sums_differ"}) {
      EXPECT_TRUE(contains(result.error, part)) << part << result.error;
    }
  }
}

// The one has nothing to sum, the other has.
ACCEL_RANK_FUNCTION(one_sums_nothing) {
  Accelerator accelerator;
  auto tensor = torch::ones({accelerator.process_index() == 1 ? 0 : 2});
  communicator().all_reduce(tensor);
}

TEST(SharedSum, OfNothingIsAnOperationToo) {
  for (const auto& result : accel::test::run("one_sums_nothing", 2)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(contains(result.error, "of Float [0]")) << result.error;
    EXPECT_TRUE(contains(result.error, "of Float [2]")) << result.error;
  }
}

ACCEL_RANK_FUNCTION(one_stays_away) {
  Accelerator accelerator(
      AcceleratorOptions().timeout(std::chrono::seconds(1)));
  if (accelerator.process_index() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ::_exit(0);
  }
  auto tensor = torch::ones({5});
  communicator().all_reduce(tensor);
}

TEST(SharedSum, TimesOut) {
  const auto results = accel::test::run("one_stays_away", 2);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_TRUE(contains(
      results[0].error, "Timed out waiting 1000 ms for process 1"))
      << results[0].error;
}

ACCEL_RANK_FUNCTION(one_is_killed_while_all_sum) {
  Accelerator accelerator;
  accelerator.wait_for_everyone();
  if (accelerator.process_index() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::raise(SIGKILL);
  }
  auto tensor = torch::ones({5});
  communicator(Channel::kGradients).all_reduce(tensor);
}

TEST(SharedSum, NoticesADeath) {
  const auto results = accel::test::run("one_is_killed_while_all_sum", 3);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    // The lock has gone, or the other who waits has noticed first.
    EXPECT_TRUE(
        contains(results[rank].error, "process 1 has ended") ||
        contains(results[rank].error, "has closed its connection"))
        << results[rank].error;
    EXPECT_LT((results[rank].elapsed - results[1].elapsed).count(), 3000);
  }
}
