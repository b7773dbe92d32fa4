#include "multiprocess.h"
#include "support.h"

#include <accel/accelerator.h>
#include <accel/checkpoint/processes.h>
#include <accel/checkpoint/state.h>

#include <cstdlib>

/// Checkpoints of several real processes.
namespace {

using namespace accel::checkpoint;
using accel::checkpoint::test::error_of;

struct Model {
  Model()
      : linear(3, 2),
        optimizer(linear->parameters(), torch::optim::SGDOptions(0.1)) {}
  TrainingState state() {
    TrainingState result;
    result.models = {&*linear};
    result.optimizers = {&optimizer};
    return result;
  }
  torch::nn::Linear linear;
  torch::optim::SGD optimizer;
};

std::string root() {
  return std::getenv("CHECKPOINT_ROOT");
}

} // namespace

ACCEL_RANK_FUNCTION(save_one_checkpoint) {
  accel::Accelerator accelerator;
  const auto processes = all_processes();
  EXPECT_EQ(
      processes.exchange(std::string(processes.rank * 3, 'x')),
      (std::vector<std::string>{"", "xxx", "xxxxxx"}));
  torch::manual_seed(100 + processes.rank);
  Model model;
  {
    const torch::NoGradGuard no_grad;
    model.linear->weight.fill_(7);
  }
  auto state = model.state();
  state.step = processes.rank;
  EXPECT_EQ(
      save_state_numbered(root(), 0, state, processes),
      root() + "/checkpoint_0");
  std::cout << torch::randint(1 << 20, {1}).item<int64_t>();

  // One of them fails: all of them throw, and say which it was.
  state.before_save = [&](const std::string&) {
    TORCH_CHECK(processes.rank != 2, "no space");
  };
  const auto error =
      error_of([&] { save_state_numbered(root(), 0, state, processes); });
  EXPECT_NE(error.find("no space"), std::string::npos) << error;
  EXPECT_EQ(error.find("process 2") != std::string::npos, processes.rank != 2);
}

ACCEL_RANK_FUNCTION(load_one_checkpoint) {
  accel::Accelerator accelerator;
  Model model;
  const auto loaded =
      load_state(*newest_checkpoint(root()), model.state(), all_processes());
  EXPECT_EQ(loaded.world_size, 3);
  EXPECT_EQ(model.linear->weight[1][2].item<float>(), 7);
  EXPECT_EQ(loaded.step, accelerator.process_index());
  std::cout << torch::randint(1 << 20, {1}).item<int64_t>();
}

TEST(Processes, SaveTogetherAndResumeWithFewer) {
  const accel::checkpoint::test::TemporaryDirectory directory;
  accel::test::RunOptions options;
  options.environment["CHECKPOINT_ROOT"] = directory.path();
  const auto saved =
      accel::test::run_and_expect_success("save_one_checkpoint", 3, options);
  EXPECT_EQ(verify_checkpoint(directory / "checkpoint_0").world_size, 3);
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(directory.path()), {}),
      1);
  const auto loaded =
      accel::test::run_and_expect_success("load_one_checkpoint", 2, options);
  // Each process goes on with its own random numbers.
  EXPECT_NE(saved[0].output, saved[1].output);
  EXPECT_EQ(loaded[0].output, saved[0].output);
  EXPECT_EQ(loaded[1].output, saved[1].output);
}
