#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/detail/communicator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::detail::Channel;
using accel::detail::communicator;
using accel::test::contains;

namespace {

/// What the processes of a run wrote to standard error, joined.
std::string errors_of(const std::vector<accel::test::RankResult>& results) {
  std::string text;
  for (const auto& result : results) {
    text += result.error;
  }
  return text;
}

AcceleratorOptions short_timeout() {
  return AcceleratorOptions().timeout(std::chrono::seconds(3));
}

} // namespace

ACCEL_RANK_FUNCTION(all_collectives) {
  Accelerator accelerator;
  for (const auto channel :
       {Channel::kMain, Channel::kGradients, Channel::kOperators}) {
    auto& comm = communicator(channel);
    const int64_t rank = comm.rank();
    const int64_t size = comm.size();
    EXPECT_EQ(rank, accelerator.state().process_index());
    EXPECT_EQ(size, accelerator.state().num_processes());

    auto sum = torch::full({3}, rank + 1, torch::kDouble);
    comm.all_reduce(sum);
    EXPECT_TRUE(torch::equal(
        sum, torch::full({3}, size * (size + 1) / 2, torch::kDouble)));

    for (const auto dtype :
         {torch::kBool,
          torch::kInt,
          torch::kShort,
          torch::kLong,
          torch::kBFloat16,
          torch::kHalf,
          torch::kDouble,
          torch::kComplexFloat}) {
      const auto mine = torch::full({2, 1}, rank % 2, dtype);
      const auto all = comm.all_gather(mine);
      ASSERT_EQ(static_cast<int64_t>(all.size()), size);
      for (int64_t r = 0; r < size; ++r) {
        EXPECT_TRUE(torch::equal(all[r], torch::full({2, 1}, r % 2, dtype)));
      }
      auto sent = torch::full({4}, rank == size - 1, dtype);
      comm.broadcast(sent, size - 1);
      EXPECT_TRUE(torch::equal(sent, torch::ones({4}, dtype)));
    }
    // Not contiguous, and empty.
    auto matrix = torch::full({2, 3}, static_cast<double>(rank)).t();
    comm.broadcast(matrix, 0);
    EXPECT_TRUE(torch::equal(matrix, torch::zeros({3, 2})));
    EXPECT_EQ(comm.all_gather(torch::empty({0, 5}))[0].size(1), 5);
    comm.barrier();
  }
}

TEST(Communicator, OneTwoAndThreeProcesses) {
  for (const int processes : {1, 2, 3}) {
    accel::test::run_and_expect_success("all_collectives", processes);
  }
}

ACCEL_RANK_FUNCTION(leaves_quickly) {
  Accelerator accelerator;
  if (accelerator.state().process_index() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  auto ones = torch::ones({1000});
  communicator(Channel::kGradients).all_reduce(ones);
}

TEST(Process, EndsWithoutTerminate) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    for (const auto& result :
         accel::test::run_and_expect_success("leaves_quickly", 3)) {
      EXPECT_EQ(result.error, "");
    }
  }
}

/// Returns when all three have met: one that fails before that is missed by
/// processes that still connect, who say so in other words.
void all_have_met() {
  const std::string name = std::getenv("ACCEL_TEST_MEETING");
  const int fd = ::open(name.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_EQ(::write(fd, "x", 1), 1);
  ::close(fd);
  while (std::filesystem::file_size(name) < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ACCEL_RANK_FUNCTION(one_throws) {
  Accelerator accelerator;
  all_have_met();
  if (accelerator.state().process_index() == 1) {
    throw std::runtime_error("the failure itself");
  }
  auto big = torch::ones({1 << 20});
  communicator(Channel::kGradients).all_reduce(big);
}

ACCEL_RANK_FUNCTION(one_is_killed) {
  Accelerator accelerator;
  all_have_met();
  if (accelerator.state().process_index() == 1) {
    ::raise(SIGKILL);
  }
  auto big = torch::ones({1 << 20});
  communicator(Channel::kGradients).all_reduce(big);
}

TEST(Process, FailureOfOneEndsTheOthers) {
  for (const char* function : {"one_throws", "one_is_killed"}) {
    std::string meeting =
        (std::filesystem::temp_directory_path() / "accel-meeting-XXXXXX")
            .string();
    ::close(::mkstemp(meeting.data()));
    accel::test::RunOptions options;
    options.environment = {{"ACCEL_TEST_MEETING", meeting}};
    const auto results = accel::test::run(function, 3, options);
    std::filesystem::remove(meeting);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(results[rank].exit_code, 1) << results[rank].error;
      EXPECT_FALSE(results[rank].timed_out);
      // After the failure; starting takes as long as it takes.
      EXPECT_LT((results[rank].elapsed - results[1].elapsed).count(), 10000);
      EXPECT_TRUE(contains(
          results[rank].error,
          "all_reduce #1 of Float [1048576] failed on process " +
              std::to_string(rank) + " of 3"))
          << results[rank].error;
      EXPECT_TRUE(contains(results[rank].error, "look at its output"));
    }
  }
}

ACCEL_RANK_FUNCTION(makes_accelerator) {
  Accelerator accelerator(short_timeout());
}

TEST(Environment, IsCheckedBeforeAnythingIsStarted) {
  using Environment = std::map<std::string, std::optional<std::string>>;
  const std::vector<std::pair<Environment, std::string>> cases = {
      {{{"WORLD_SIZE", std::nullopt}}, "RANK is set (0) but WORLD_SIZE is not"},
      {{{"RANK", std::nullopt}, {"WORLD_SIZE", "2"}},
       "WORLD_SIZE is set (2) but RANK is not"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is 2 but WORLD_SIZE is 2"},
      {{{"RANK", "one"}}, "RANK is 'one'"},
      {{{"WORLD_SIZE", "2"}, {"MASTER_PORT", "http"}}, "MASTER_PORT is 'http'"},
      {{{"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}, "from 1 to 65535"},
      {{{"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", std::nullopt}},
       "MASTER_ADDR is not set"},
      {{{"ACCELERATE_USE_CPU", "maybe"}}, "ACCELERATE_USE_CPU is 'maybe'"},
      {{{"ACCELERATE_MIXED_PRECISION", "fp12"}}, "'fp12'"},
      {{{"ACCELERATE_MIXED_PRECISION", "fp8"}}, "TransformerEngine"},
      {{{"ACCELERATE_MIXED_PRECISION", "fp16"}, {"ACCELERATE_USE_CPU", "1"}},
       "computes on the CPU"},
      {{{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0"}},
       "ACCELERATE_GRADIENT_ACCUMULATION_STEPS is '0'"},
  };
  for (const auto& [environment, message] : cases) {
    accel::test::RunOptions options;
    options.environment = environment;
    const auto results = accel::test::run("makes_accelerator", 1, options);
    EXPECT_EQ(results[0].exit_code, 1) << message;
    EXPECT_TRUE(contains(results[0].error, message)) << results[0].error;
  }
}

TEST(Environment, OneProcessNeedsNoMaster) {
  accel::test::RunOptions options;
  options.environment = {
      {"RANK", std::nullopt},
      {"WORLD_SIZE", std::nullopt},
      {"MASTER_ADDR", std::nullopt},
      {"MASTER_PORT", std::nullopt}};
  accel::test::run_and_expect_success("makes_accelerator", 1, options);
}

TEST(Environment, TakenPortIsNamed) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(socket, generic, size), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ASSERT_EQ(::getsockname(socket, generic, &size), 0);
  accel::test::RunOptions options;
  options.port = ntohs(address.sin_port);
  const auto results = accel::test::run("makes_accelerator", 2, options);
  ::close(socket);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_TRUE(contains(
      results[0].error,
      "cannot open port " + std::to_string(options.port)))
      << results[0].error;
  // The other waits for its timeout, not for ever.
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_FALSE(results[1].timed_out);
}

TEST(Environment, MissingMasterIsReportedInTime) {
  accel::test::RunOptions options;
  options.environment = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"}};
  const auto results = accel::test::run("makes_accelerator", 1, options);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_TRUE(contains(results[0].error, "process 1 of 2 found nobody at"))
      << results[0].error;
  EXPECT_LT(results[0].elapsed.count(), 20000);
}

ACCEL_RANK_FUNCTION(options_differ) {
  const bool match = std::string(std::getenv("RANK")) == "1";
  Accelerator accelerator(AcceleratorOptions().match_single_device(match));
}

TEST(Environment, OptionsMustAgreeBetweenProcesses) {
  const auto results = accel::test::run("options_differ", 2);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_EQ(results[1].exit_code, 1);
  // What differs, and nothing of the thirty others.
  EXPECT_TRUE(contains(
      errors_of(results),
      "different options: match_single_device is false on process 0 and true on "
      "process 1;"))
      << errors_of(results);
  EXPECT_FALSE(contains(errors_of(results), "even_batches"));
}

TEST(State, SecondAcceleratorSharesOrIsRefused) {
  EXPECT_THROW(accel::accelerator().wait_for_everyone(), c10::Error);
  Accelerator first(AcceleratorOptions().match_single_device(true));
  {
    Accelerator second(AcceleratorOptions().match_single_device(true));
    EXPECT_EQ(&first.state(), &second.state());
    EXPECT_EQ(&accel::accelerator(), &first);
  }
  try {
    Accelerator third;
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(contains(text, "match_single_device=true")) << text;
    EXPECT_TRUE(contains(text, "match_single_device=false")) << text;
  }
  EXPECT_TRUE(accel::detail::match_single_device());
  EXPECT_FALSE(accel::detail::distributed());
}

ACCEL_RANK_FUNCTION(one_after_the_other) {
  // Some processes come back at once, some late.
  for (int round = 0; round < 4; ++round) {
    Accelerator accelerator(
        AcceleratorOptions().match_single_device(round % 2 == 0));
    const auto rank = accelerator.process_index();
    const auto world = accelerator.num_processes();
    EXPECT_EQ(accelerator.state().match_single_device(), round % 2 == 0);
    torch::nn::Linear model(2, 1);
    accelerator.prepare(model);
    // The mean of the same numbers over the processes.
    accelerator.backward(
        accelerator.state().match_single_device()
            ? (model->weight.sum() *
               accelerator.distribute(torch::arange(world) + round))
                  .sum()
                  .div(world)
            : model->weight.sum() * double(rank + round));
    EXPECT_NEAR(
        model->weight.grad()[0][0].item<double>(),
        (world - 1) / 2. + round,
        1e-6);
    if (rank == round % world) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
  }
  EXPECT_THROW(accel::accelerator().wait_for_everyone(), c10::Error);
}

TEST(State, AcceleratorsMayFollowEachOther) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("one_after_the_other", world);
  }
}

ACCEL_RANK_FUNCTION(unseeded) {
  // Process 0's numbers, whether it was drawn from before or not.
  if (std::getenv("RANK")[0] != '0') {
    torch::rand({5});
  }
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  auto generator = at::detail::getDefaultCPUGenerator();
  auto seed = torch::tensor({static_cast<int64_t>(generator.current_seed())});
  const auto data = torch::randn({100});
  const auto order = torch::randperm(50);
  for (const auto& mine : {seed, data, order}) {
    for (const auto& other : communicator().all_gather(mine)) {
      EXPECT_TRUE(torch::equal(other, mine));
    }
  }
  torch::nn::Linear model(2, 1);
  accelerator.prepare(model); // warns where the generators have parted
}

TEST(State, UnseededProcessesDrawTheSameNumbers) {
  for (const auto& result :
       accel::test::run_and_expect_success("unseeded", 3)) {
    EXPECT_FALSE(contains(result.error, "Warning")) << result.error;
  }
}

ACCEL_RANK_FUNCTION(unseeded_as_accelerate) {
  torch::manual_seed(std::getenv("RANK")[0]);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  Accelerator accelerator;
  EXPECT_TRUE(torch::equal(
      before, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(State, AcceleratesModeLeavesGeneratorsAlone) {
  accel::test::run_and_expect_success("unseeded_as_accelerate", 2);
}

TEST(State, EnvironmentOverridesTheOptions) {
  ::setenv("ACCEL_MATCH_SINGLE_DEVICE", "0", 1);
  ::setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", 1);
  const auto options =
      accel::resolve(AcceleratorOptions()
                         .match_single_device(true)
                         .gradient_accumulation_steps(2));
  ::unsetenv("ACCEL_MATCH_SINGLE_DEVICE");
  ::unsetenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  EXPECT_FALSE(options.match_single_device);
  EXPECT_EQ(options.gradient_accumulation_steps, 4);
}
