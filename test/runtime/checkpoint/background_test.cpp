// save_state with `asynchronous`: training goes on, what is written is what was
// there at the call, and nothing that goes wrong goes unnoticed.

#include "multiprocess.h"
#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

namespace fs = std::filesystem;
using accel::checkpoint::test::error_of;
using accel::checkpoint::test::identical;
using accel::checkpoint::test::read_file;
using accel::checkpoint::test::TemporaryDirectory;

const auto kInBackground = accel::SaveStateOptions().asynchronous(true);

/// Trained for a step, so that its optimizer has a state.
struct Trained {
  explicit Trained(accel::Accelerator& accelerator)
      : model(3, 2),
        optimizer(model->parameters(), torch::optim::AdamOptions(0.1)) {
    accelerator.prepare(model, optimizer);
    step();
  }
  void step() {
    optimizer.zero_grad();
    accel::accelerator().backward(
        model->forward(torch::randn({4, 3})).pow(2).mean());
    optimizer.step();
  }
  torch::nn::Linear model;
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer;
};

/// Everything that `descriptor` gives until its other end is closed.
std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(descriptor, buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

bool is_valid(const std::string& directory) {
  return error_of([&] { accel::checkpoint::verify_checkpoint(directory); })
      .empty();
}

std::string shared_directory() {
  return std::getenv("BACKGROUND_DIRECTORY");
}

accel::test::RunOptions in_directory(const TemporaryDirectory& directory) {
  accel::test::RunOptions options;
  options.environment["BACKGROUND_DIRECTORY"] = directory.path();
  return options;
}

} // namespace

// A pipe in the place of a file holds the writing thread until somebody reads
// from it: the bytes that come out of it then must be older than what the
// program has done meanwhile. Pipes cannot be synced, so that this save fails.
TEST(BackgroundSave, WritesWhatWasThereAtTheCallAndTellsWhatFailed) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  torch::manual_seed(1);
  Trained trained(accelerator);
  const std::string path = directory / "last";
  accelerator.save_state(path);
  const std::string before = read_file(path + "/manifest.json");

  trained.step();
  std::string pipe;
  auto hook = accelerator.register_save_state_pre_hook(
      [&](std::vector<torch::nn::Module*>&, const std::string& temporary) {
        pipe = temporary + "/model.safetensors";
        ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
      });
  const auto saved = trained.model->weight.detach().clone();
  EXPECT_EQ(accelerator.save_state(path, kInBackground), path);
  hook.remove();
  trained.step();
  ASSERT_FALSE(identical(trained.model->weight, saved));
  EXPECT_EQ(read_file(path + "/manifest.json"), before);

  const int reader = ::open(pipe.c_str(), O_RDONLY);
  ASSERT_GE(reader, 0);
  const std::string bytes = read_all(reader);
  ::close(reader);
  accel::checkpoint::test::write_file(directory / "piped", bytes);
  const accel::checkpoint::SafetensorsFile file(directory / "piped");
  EXPECT_TRUE(identical(file.read("weight"), saved));

  EXPECT_ERROR(accelerator.wait_for_checkpoint(), "model.safetensors");
  accelerator.wait_for_checkpoint(); // There is none any more.
  EXPECT_EQ(read_file(path + "/manifest.json"), before);
  EXPECT_EQ(
      std::distance(fs::directory_iterator(directory.path()), {}), 2);
  // The next one is not disturbed.
  accelerator.save_state(path, kInBackground);
  accelerator.wait_for_checkpoint();
  EXPECT_NE(read_file(path + "/manifest.json"), before);
  EXPECT_TRUE(is_valid(path));
}

// The files are those of a save that waits, byte for byte.
TEST(BackgroundSave, WritesTheSameFiles) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  Trained trained(accelerator);
  // Not contiguous, and shared by two names.
  auto tensor = torch::arange(6, torch::kDouble).view({2, 3}).t();
  torch::nn::Sequential tied(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  tied[1]->as<torch::nn::Linear>()->weight =
      tied[0]->as<torch::nn::Linear>()->weight;
  accelerator.prepare(tied);
  int64_t epoch = 7;
  accelerator.register_for_checkpointing(epoch, tensor);
  accelerator.save_state(directory / "waiting");
  accelerator.save_state(directory / "background", kInBackground);
  epoch = 8;
  tensor.zero_();
  trained.step();
  accelerator.wait_for_checkpoint();
  EXPECT_EQ(
      read_file(directory / "background/manifest.json"),
      read_file(directory / "waiting/manifest.json"));
  EXPECT_TRUE(is_valid(directory / "background"));
  accelerator.load_state(directory / "background");
  EXPECT_EQ(epoch, 7);
}

// Several threads copy what is large, in pieces; what is not contiguous needs
// LibTorch for that.
TEST(BackgroundSave, CopiesLargeTensors) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  torch::nn::Linear model(3001, 3003); // 36 MB, no multiple of anything
  model->register_buffer("turned", torch::rand({1001, 2003}).t());
  model->register_buffer("half", torch::rand({77}).to(torch::kHalf));
  model->register_buffer("none", torch::empty({0, 5}));
  accelerator.prepare(model);
  accelerator.save_state(directory / "waiting");
  accelerator.save_state(directory / "background", kInBackground);
  for (auto& tensor : model->buffers()) {
    tensor.zero_();
  }
  {
    const torch::NoGradGuard no_grad;
    model->weight.zero_();
    model->bias.zero_();
  }
  accelerator.wait_for_checkpoint();
  const std::string name = "/model.safetensors";
  EXPECT_TRUE(
      read_file(directory / "background" + name) ==
      read_file(directory / "waiting" + name));
  EXPECT_TRUE(is_valid(directory / "background"));
}

// Every call that needs the checkpoint waits for it, and so does the end.
TEST(BackgroundSave, IsWaitedFor) {
  const TemporaryDirectory directory;
  const std::string root = directory / "checkpoints/checkpoint_";
  const auto options = accel::AcceleratorOptions()
                           .cpu(true)
                           .project_dir(directory.path())
                           .automatic_checkpoint_naming(true)
                           .total_limit(2);
  {
    accel::Accelerator accelerator(options);
    Trained trained(accelerator);
    int64_t count = 0;
    accelerator.register_for_checkpointing(count);
    for (; count < 4; ++count) {
      EXPECT_EQ(
          accelerator.save_state("", kInBackground),
          root + std::to_string(count));
    }
    accelerator.load_state();
    EXPECT_EQ(count, 3);
    EXPECT_FALSE(fs::exists(root + "1"));
    accelerator.save_state("", kInBackground);
    accelerator.end_training();
    EXPECT_TRUE(is_valid(root + "4"));
    accelerator.save_state("", kInBackground);
  }
  EXPECT_TRUE(is_valid(root + "5"));
  EXPECT_FALSE(fs::exists(root + "3"));
}

// What cannot begin is said at once.
TEST(BackgroundSave, RefusesWhatCannotBegin) {
  const TemporaryDirectory directory;
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  Trained trained(accelerator);
  accel::checkpoint::test::write_file(directory / "file", "");
  EXPECT_ERROR(
      accelerator.save_state(directory / "file", kInBackground),
      "there is a file of that name");
  auto hook = accelerator.register_save_state_pre_hook(
      [](std::vector<torch::nn::Module*>&, const std::string&) {
        TORCH_CHECK(false, "the hook's own error");
      });
  EXPECT_ERROR(
      accelerator.save_state(directory / "new", kInBackground),
      "the hook's own error");
  accelerator.wait_for_checkpoint();
  EXPECT_EQ(
      std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

ACCEL_RANK_FUNCTION(saves_in_the_background) {
  const std::string path = shared_directory() + "/last";
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  Trained trained(accelerator);
  int64_t round = 0;
  accelerator.register_for_checkpointing(round);
  for (; round < 5; ++round) {
    accelerator.save_state(path, kInBackground);
    // The threads and the training use their connections at the same time.
    for (int i = 0; i < 20; ++i) {
      trained.step();
    }
  }
  accelerator.wait_for_checkpoint();
  EXPECT_TRUE(is_valid(path));
  accelerator.load_state(path);
  EXPECT_EQ(round, 4);

  // One process cannot write its file: all learn which one, and why.
  auto hook = accelerator.register_save_state_pre_hook(
      [&](std::vector<torch::nn::Module*>&, const std::string& temporary) {
        if (accelerator.is_last_process()) {
          fs::create_directory(temporary + "/random_states_2.safetensors");
        }
      });
  accelerator.save_state(path, kInBackground);
  hook.remove();
  trained.step();
  const auto message = error_of([&] { accelerator.wait_for_checkpoint(); });
  EXPECT_NE(message.find("random_states_2"), std::string::npos) << message;
  if (!accelerator.is_last_process()) {
    EXPECT_NE(message.find("failed on process 2"), std::string::npos)
        << message;
  }
  trained.step();
  EXPECT_TRUE(is_valid(path));
  round = 9;
  accelerator.save_state(path, kInBackground);
  round = 10;
  accelerator.load_state(path);
  EXPECT_EQ(round, 9);
}

TEST(BackgroundSave, OfSeveralProcesses) {
  const TemporaryDirectory directory;
  accel::test::run_and_expect_success(
      "saves_in_the_background", 3, in_directory(directory));
  EXPECT_EQ(
      std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

ACCEL_RANK_FUNCTION(dies_while_saving) {
  const std::string path = shared_directory() + "/last";
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  Trained trained(accelerator);
  accelerator.save_state(path);
  auto hook = accelerator.register_save_state_pre_hook(
      [&](std::vector<torch::nn::Module*>&, const std::string& temporary) {
        if (!accelerator.is_main_process()) {
          const auto pipe = temporary + "/random_states_1.safetensors";
          ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
        }
      });
  accelerator.save_state(path, kInBackground);
  if (!accelerator.is_main_process()) {
    ::raise(SIGKILL);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(accelerator.wait_for_checkpoint(), "another process");
  EXPECT_LT(
      std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  std::cout << "noticed" << std::endl;
  // The orderly end would wait for the other process.
  ::_exit(testing::Test::HasFailure());
}

TEST(BackgroundSave, OneProcessDies) {
  const TemporaryDirectory directory;
  const auto results =
      accel::test::run("dies_while_saving", 2, in_directory(directory));
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_EQ(results[0].exit_code, 0) << results[0].error;
  EXPECT_EQ(results[0].output, "noticed\n");
  EXPECT_TRUE(is_valid(directory / "last"));
  EXPECT_EQ(
      std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

ACCEL_RANK_FUNCTION(fails_behind_the_end) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  Trained trained(accelerator);
  accelerator.register_save_state_pre_hook(
      [&](std::vector<torch::nn::Module*>&, const std::string& temporary) {
        if (accelerator.is_main_process()) {
          fs::create_directory(temporary + "/model.safetensors");
        }
      });
  accelerator.save_state(shared_directory() + "/last", kInBackground);
}

TEST(BackgroundSave, TheEndPrintsWhatFailed) {
  const TemporaryDirectory directory;
  for (const auto& result : accel::test::run_and_expect_success(
           "fails_behind_the_end", 2, in_directory(directory))) {
    EXPECT_NE(result.error.find("is not there"), std::string::npos)
        << result.error;
    EXPECT_NE(result.error.find("model.safetensors"), std::string::npos)
        << result.error;
  }
  EXPECT_FALSE(fs::exists(directory / "last"));
}
