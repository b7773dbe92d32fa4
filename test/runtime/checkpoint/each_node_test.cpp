// save_on_each_node: hosts that do not see each other's disks. Two processes
// each are taken for a host, with a folder of its own.

#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>

#include <cstdlib>

namespace {

namespace fs = std::filesystem;
using accel::checkpoint::test::error_of;
using accel::checkpoint::test::read_file;
using accel::checkpoint::test::TemporaryDirectory;

std::string folder(int64_t host) {
  return std::string(std::getenv("EACH_NODE_DIRECTORY")) + "/host" +
      std::to_string(host);
}

/// Makes this process the second or the first one of its host; returns the
/// host. To be called before there is an Accelerator.
int64_t take_place() {
  const int64_t rank = std::atoi(std::getenv("RANK"));
  ::setenv("LOCAL_RANK", std::to_string(rank % 2).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  return rank / 2;
}

accel::AcceleratorOptions options(int64_t host) {
  return accel::AcceleratorOptions()
      .cpu(true)
      .save_on_each_node(true)
      .project_dir(folder(host))
      .automatic_checkpoint_naming(true)
      .total_limit(2);
}

std::string checkpoint_of(int64_t host, int64_t number) {
  return folder(host) + "/checkpoints/checkpoint_" + std::to_string(number);
}

} // namespace

ACCEL_RANK_FUNCTION(saves_on_each_node) {
  const int64_t host = take_place();
  accel::Accelerator accelerator(options(host));
  torch::manual_seed(accelerator.process_index());
  torch::nn::Linear model(3, 2);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), 0.1);
  accelerator.prepare(model, optimizer);
  int64_t count = 0;
  accelerator.register_for_checkpointing(count);
  std::vector<torch::Tensor> drawn;
  for (; count < 3; ++count) {
    const bool background = count == 1;
    accelerator.save_state(
        "", accel::SaveStateOptions().asynchronous(background));
    drawn.push_back(torch::rand({4}));
  }
  accelerator.wait_for_everyone();
  EXPECT_FALSE(fs::exists(checkpoint_of(host, 0)));
  for (const int64_t number : {1, 2}) {
    accel::checkpoint::verify_checkpoint(checkpoint_of(host, number));
    EXPECT_EQ(
        read_file(checkpoint_of(host, number) + "/manifest.json"),
        read_file(checkpoint_of(1 - host, number) + "/manifest.json"));
  }
  accelerator.load_state();
  EXPECT_EQ(count, 2);
  EXPECT_TRUE(torch::rand({4}).equal(drawn[2]));

  // One host has lost its newest: the newest of all is the one before.
  if (accelerator.process_index() == 2) {
    fs::remove_all(checkpoint_of(1, 2));
  }
  accelerator.wait_for_everyone();
  accelerator.load_state();
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(torch::rand({4}).equal(drawn[1]));
  // Numbers are counted over all hosts.
  count = 7;
  EXPECT_EQ(accelerator.save_state(), checkpoint_of(host, 3));

  // Two hosts with different checkpoints of one name.
  accelerator.wait_for_everyone();
  if (accelerator.process_index() == 2) {
    fs::remove_all(checkpoint_of(1, 3));
    fs::rename(checkpoint_of(1, 1), checkpoint_of(1, 3));
  }
  accelerator.wait_for_everyone();
  count = 8;
  EXPECT_ERROR(
      accelerator.load_state(checkpoint_of(host, 3)), "another checkpoint");
  EXPECT_EQ(count, 8);

  accelerator.save_model(model, folder(host) + "/model");
  accelerator.save(model, folder(host) + "/model.pt");
  accelerator.wait_for_everyone();
  EXPECT_TRUE(fs::exists(folder(host) + "/model/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder(host) + "/model.pt"));
}

// One process with the folder of the second host: it holds everything.
ACCEL_RANK_FUNCTION(loads_what_one_host_has) {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().cpu(true).project_dir(folder(1)));
  torch::nn::Linear model(3, 2);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), 0.1);
  accelerator.prepare(model, optimizer);
  int64_t count = 0;
  accelerator.register_for_checkpointing(count);
  accelerator.load_state(checkpoint_of(1, 3));
  EXPECT_EQ(count, 1);
}

TEST(SaveOnEachNode, EachHostHasAWholeCheckpoint) {
  const TemporaryDirectory directory;
  accel::test::RunOptions environment;
  environment.environment["EACH_NODE_DIRECTORY"] = directory.path();
  accel::test::run_and_expect_success("saves_on_each_node", 4, environment);
  accel::test::run_and_expect_success(
      "loads_what_one_host_has", 1, environment);
}
