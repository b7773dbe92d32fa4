#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/processes.h>
#include <accel/checkpoint/state.h>
#include <accel/utils/local_sgd.h>

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

namespace {

/// Trains a step on each process's own batch, with batch norm; saves in `save`.
struct OwnBatches {
  explicit OwnBatches(const accel::AcceleratorOptions& options)
      : accelerator(options), model(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)),
        optimizer(
            model->parameters(), torch::optim::SGDOptions(0.1)) {
    accelerator.prepare(model, optimizer);
  }
  void step() {
    const auto guard = accelerator.accumulate(model);
    torch::manual_seed(accelerator.process_index());
    accelerator.backward(model->forward(torch::randn({4, 3})).square().sum());
    optimizer.step();
    optimizer.zero_grad();
  }
  void save() {
    accelerator.save_state(root() + "/saved");
  }
  accel::Accelerator accelerator;
  torch::nn::Sequential model;
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer;
};

std::string said_by_first(const std::string& function) {
  const accel::checkpoint::test::TemporaryDirectory directory;
  accel::test::RunOptions options;
  options.environment["CHECKPOINT_ROOT"] = directory.path();
  const auto results = accel::test::run_and_expect_success(function, 2, options);
  EXPECT_EQ(results[1].error.find("accel: save_state"), std::string::npos);
  return results[0].error;
}

} // namespace

// Each process has another model then, and the checkpoint would have process 0's.
ACCEL_RANK_FUNCTION(save_while_training_locally) {
  OwnBatches training((accel::AcceleratorOptions()));
  {
    accel::LocalSGD local(training.model->parameters(), 2);
    training.save();
    training.step();
    local.step();
    const auto error = error_of([&] { training.save(); });
    EXPECT_NE(error.find("(parameters, buffers"), std::string::npos) << error;
    EXPECT_NE(error.find("behind the scope"), std::string::npos) << error;
    training.step();
    local.step();
    {
      // Buffers are not averaged, nor are states of optimizers.
      const auto still = error_of([&] { training.save(); });
      EXPECT_NE(still.find("(buffers"), std::string::npos) << still;
    }
  }
  training.step(); // makes buffers alike
}

TEST(Processes, LocalTrainingIsNotSaved) {
  EXPECT_EQ(said_by_first("save_while_training_locally"), "");
}

ACCEL_RANK_FUNCTION(save_other_buffers) {
  OwnBatches training(accel::AcceleratorOptions().broadcast_buffers(false));
  training.save();
  std::cerr << "same\n";
  training.step();
  training.save();
}

TEST(Processes, OtherBuffersAreTold) {
  const auto said = said_by_first("save_other_buffers");
  EXPECT_NE(said.find("buffer model.1.running_mean"), std::string::npos) << said;
  EXPECT_GT(said.find("running_mean"), said.find("same\n"));
}

ACCEL_RANK_FUNCTION(save_other_objects) {
  OwnBatches training((accel::AcceleratorOptions()));
  int64_t same = 1, other = training.accelerator.process_index();
  training.accelerator.register_for_checkpointing(same, other);
  training.step();
  training.save();
}

TEST(Processes, OtherObjectsAreTold) {
  const auto said = said_by_first("save_other_objects");
  EXPECT_NE(said.find("(object_1, in the order"), std::string::npos) << said;
}
