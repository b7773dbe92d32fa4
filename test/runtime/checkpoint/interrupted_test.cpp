#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/state.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>

/// What happens to checkpoints when the process or the disk fails. Every save
/// runs in a process of its own.
namespace accel::checkpoint::test {
namespace {

namespace fs = std::filesystem;

/// A model whose values all say which save it is from.
struct Marked {
  Marked()
      : model(torch::nn::Linear(64, 64), torch::nn::Linear(64, 64)),
        optimizer(model->parameters(), torch::optim::AdamOptions(0.1)) {
    for (const auto& parameter : model->parameters()) {
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    optimizer.step();
  }
  TrainingState state() {
    TrainingState result;
    result.models = {&*model};
    result.optimizers = {&optimizer};
    return result;
  }
  void mark(double value) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.fill_(value);
    }
  }
  /// The mark; fails where the values are from different saves.
  double marked() const {
    const double value = model->parameters()[0][0][0].item<double>();
    for (const auto& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.eq(value).all().item<bool>());
    }
    return value;
  }

  torch::nn::Sequential model;
  torch::optim::Adam optimizer;
};

/// Runs `work` in a child process and returns what `waitpid` says.
template <typename Work>
int in_child(const Work& work, std::chrono::microseconds kill_after = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = work();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    ::_exit(status);
  }
  if (kill_after.count() > 0) {
    ::usleep(static_cast<useconds_t>(kill_after.count()));
    ::kill(child, SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

/// 0 where saving throws an error that says `part`, so that a child can report.
int expect_save_error(
    const std::string& directory, const std::string& part, double mark) {
  Marked marked;
  marked.mark(mark);
  const auto message = error_of([&] { save_state(directory, marked.state()); });
  if (message.find(part) == std::string::npos) {
    std::cerr << "expected '" << part << "', got: " << message << std::endl;
    return 1;
  }
  return 0;
}

/// How often a saving process is killed in each of two tests: test/soak does
/// it more often.
int kills() {
  const char* value = std::getenv("ACCEL_TEST_KILLS");
  return value == nullptr ? 20 : std::atoi(value);
}

/// How long `save` takes on this machine now, in microseconds.
template <typename Save>
int time_of(const Save& save) {
  const auto begin = std::chrono::steady_clock::now();
  save();
  return static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::steady_clock::now() - begin)
                              .count());
}

class Interrupted : public testing::Test {
 protected:
  void SetUp() override {
    // A forked child must not wait for threads that it does not have.
    at::set_num_threads(1);
  }
};

TEST_F(Interrupted, KilledWhileSavingNumbered) {
  const TemporaryDirectory directory;
  Marked marked;
  marked.mark(0);
  const int usual = time_of(
      [&] { save_state_numbered(directory.path(), 2, marked.state()); });
  std::mt19937 random(17);
  // From before the first save to after the third.
  std::uniform_int_distribution<int> delay(500, 4 * usual + 1000);
  int64_t newest = 0, killed_within = 0;
  int before = 1;
  for (int round = 0; round < kills(); ++round) {
    const int status = in_child(
        [&] {
          for (int64_t i = next_checkpoint_index(directory.path());; ++i) {
            marked.mark(static_cast<double>(i));
            save_state_numbered(directory.path(), 2, marked.state());
          }
          return 0;
        },
        std::chrono::microseconds(delay(random)));
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    int complete = 0;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      const auto name = entry.path().filename().string();
      if (name.rfind("checkpoint_", 0) == 0) {
        verify_checkpoint(entry.path().string());
        ++complete;
      } else {
        ++killed_within;
      }
    }
    EXPECT_GE(complete, 1);
    // One more than the limit where the kill came before the old ones were
    // removed, and as many more as kills in a row came there.
    EXPECT_LE(complete, std::max(3, before + 1));
    before = complete;
    const auto path = newest_checkpoint(directory.path(), Verify::kChecksums);
    ASSERT_TRUE(path);
    Marked loaded;
    load_state(*path, loaded.state());
    const auto index = std::stoll(path->substr(path->rfind('_') + 1));
    EXPECT_EQ(loaded.marked(), static_cast<double>(index));
    EXPECT_GE(index, newest);
    newest = index;
  }
  // Otherwise nothing was tried.
  EXPECT_GT(newest, 0);
  EXPECT_GT(killed_within, 0);
  marked.mark(-1);
  save_state_numbered(directory.path(), 1, marked.state());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST_F(Interrupted, KilledWhileReplacing) {
  const TemporaryDirectory directory;
  const auto path = directory / "last";
  Marked marked;
  marked.mark(0);
  save_state(path, marked.state());
  const int usual = time_of([&] { save_state(path, marked.state()); });
  std::mt19937 random(23);
  std::uniform_int_distribution<int> delay(500, 4 * usual + 1000);
  double newest = 0;
  for (int round = 0; round < kills(); ++round) {
    in_child(
        [&] {
          for (double i = newest + 1;; ++i) {
            marked.mark(i);
            save_state(path, marked.state());
          }
          return 0;
        },
        std::chrono::microseconds(delay(random)));
    Marked loaded;
    load_state(path, loaded.state());
    EXPECT_GE(loaded.marked(), newest);
    newest = loaded.marked();
  }
  EXPECT_GT(newest, 0);
}

/// The same while a thread writes and the program changes what was saved.
TEST_F(Interrupted, KilledWhileSavingInTheBackground) {
  const TemporaryDirectory directory;
  const auto path = directory / "last";
  const auto options = AcceleratorOptions().cpu(true);
  Marked marked;
  marked.mark(0);
  save_state(path, marked.state());
  const int usual = time_of([&] { save_state(path, marked.state()); });
  std::mt19937 random(29);
  std::uniform_int_distribution<int> delay(500, 8 * usual + 1000);
  double newest = 0;
  for (int round = 0; round < kills(); ++round) {
    in_child(
        [&] {
          Accelerator accelerator(options);
          AcceleratedOptimizer<torch::optim::Adam> optimizer(
              marked.model->parameters(), torch::optim::AdamOptions(0.1));
          accelerator.prepare(marked.model, optimizer);
          optimizer.step();
          for (double i = newest + 1;; ++i) {
            marked.mark(i);
            accelerator.save_state(
                path, SaveStateOptions().asynchronous(true));
            marked.mark(-i);
          }
          return 0;
        },
        std::chrono::microseconds(delay(random)));
    verify_checkpoint(path);
    Marked loaded;
    load_state(path, loaded.state());
    EXPECT_GE(loaded.marked(), newest);
    newest = loaded.marked();
  }
  EXPECT_GT(newest, 0);
}

TEST_F(Interrupted, ReadOnlyDirectory) {
  const TemporaryDirectory directory;
  const auto path = directory / "last";
  Marked marked;
  marked.mark(1);
  save_state(path, marked.state());
  ASSERT_EQ(::chmod(directory.path().c_str(), 0555), 0);
  const int status = in_child([&] {
    // Permissions do not stop the superuser.
    if (::geteuid() == 0 && ::setuid(65534) != 0) {
      return 2;
    }
    return expect_save_error(path, "Permission denied", 2) +
           expect_save_error(directory / "new", "Permission denied", 2);
  });
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  load_state(path, marked.state());
  EXPECT_EQ(marked.marked(), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST_F(Interrupted, FilesThatGrowTooLarge) {
  const TemporaryDirectory directory;
  const auto path = directory / "last";
  Marked marked;
  marked.mark(1);
  save_state(path, marked.state());
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20000, 20000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      return 2;
    }
    return expect_save_error(path, "File too large", 2) +
           expect_save_error(directory / "new", "model.safetensors", 2);
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
  load_state(path, marked.state());
  EXPECT_EQ(marked.marked(), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

/// Where a small file system can be mounted (as root, or in a namespace of
/// one's own), a disk that is really full; elsewhere the limit of the test
/// above, at another file.
TEST_F(Interrupted, FullDisk) {
  const TemporaryDirectory directory;
  const int status = in_child([&] {
    const bool own = ::unshare(CLONE_NEWNS) == 0 ||
                     ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const bool mounted =
        own &&
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=180k") ==
            0;
    const auto path = directory / "last";
    Marked marked;
    marked.mark(1);
    // One checkpoint has about 105 KB: there is room for one, not for two.
    save_state(path, marked.state());
    if (!mounted) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{40000, 40000};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 2;
      }
    }
    std::cerr << (mounted ? "full tmpfs" : "no mount; RLIMIT_FSIZE")
              << std::endl;
    int failures = expect_save_error(
        path, mounted ? "No space left on device" : "File too large", 2);
    load_state(path, marked.state());
    failures += marked.marked() == 1 ? 0 : 4;
    // What could not be finished is gone, so that there is room again.
    failures += std::distance(fs::directory_iterator(directory.path()), {}) == 1
                    ? 0
                    : 8;
    return failures;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

} // namespace
} // namespace accel::checkpoint::test
