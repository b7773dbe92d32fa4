#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/state.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>

/// What happens to checkpoints when the process or the disk fails. Every save
/// runs in a process of its own.
namespace accel::checkpoint::test {
namespace {

namespace fs = std::filesystem;

/// A model and an optimizer whose values all say which save they are from.
struct Marked {
  explicit Marked(int64_t width = 64)
      : model(torch::nn::Linear(width, width), torch::nn::Linear(width, width)),
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
    for (auto& tensor : tensors()) {
      tensor.fill_(value);
    }
  }
  /// The mark; fails where a bit is from another save.
  double marked() const {
    const double value = model->parameters()[0][0][0].item<double>();
    for (const auto& tensor : tensors()) {
      EXPECT_TRUE(torch::equal(tensor, torch::full_like(tensor, value)));
    }
    return value;
  }
  std::vector<at::Tensor> tensors() const {
    auto result = model->parameters();
    for (const auto& [parameter, state] : optimizer.state()) {
      const auto& adam =
          static_cast<const torch::optim::AdamParamState&>(*state);
      result.push_back(adam.exp_avg());
      result.push_back(adam.exp_avg_sq());
    }
    return result;
  }

  torch::nn::Sequential model;
  torch::optim::Adam optimizer;
};

/// Runs `work` in a child process and returns what `waitpid` says. Forked where
/// there are no threads, so that it need not load LibTorch again.
template <typename Work, typename Meanwhile>
int in_child(const Work& work, const Meanwhile& meanwhile) {
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
  meanwhile(child);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

template <typename Work>
int in_child(const Work& work) {
  return in_child(work, [](pid_t) {});
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

/// How often a saving process is killed in each of two tests, and half as often
/// in the third: test/soak does it more often.
int kills() {
  const char* value = std::getenv("ACCEL_TEST_KILLS");
  return value == nullptr ? 100 : std::atoi(value);
}

/// Where that happens: in memory, where a save takes 2 ms. To a process that is
/// killed a disk makes no other difference than that it takes longer, thirty
/// times as long. With a number of kills that was asked for it is the disk.
fs::path killing_ground() {
  const bool memory = std::getenv("ACCEL_TEST_KILLS") == nullptr &&
                      ::access("/dev/shm", W_OK) == 0;
  return memory ? "/dev/shm" : fs::temp_directory_path();
}

/// Of models that are killed: writing the files is not all that a save does.
constexpr int64_t kWidth = 16;

/// What stands in `directory` and is no checkpoint: the kill came within a
/// save.
int64_t unfinished_in(const std::string& directory) {
  return std::count_if(
      fs::directory_iterator(directory),
      fs::directory_iterator(),
      [](const fs::directory_entry& entry) {
        return entry.path().filename().string().front() == '.';
      });
}

/// How long `save` takes on this machine now, in microseconds: the mean of
/// three, of which the first one may be slower.
template <typename Save>
int time_of(const Save& save) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    save();
  }
  return static_cast<int>(
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::steady_clock::now() - begin)
          .count() /
      3);
}

/// Up to how many microseconds after its first save a child is killed. A save in
/// a child, whose memory is copied as it is written, or in the background, takes
/// several times as long as `usual`, how many depends on the machine: some kills
/// come early, some after several saves.
int latest(int round, int usual) {
  return (2 + round % 14) * usual;
}

/// A process that saves, is killed at a random moment of that, and what it has
/// come to: the marks of the last save that it has begun, and of the last that
/// it has finished. It says so in memory that outlives it.
class Killed {
 public:
  Killed()
      : progress_(static_cast<Progress*>(::mmap(
            nullptr,
            sizeof(Progress),
            PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS,
            -1,
            0))) {}
  ~Killed() {
    ::munmap(progress_, sizeof(Progress));
  }

  /// Calls `save_all`, which saves until it is killed, up to `latest`
  /// microseconds after its first save has begun.
  template <typename Save>
  void run(const Save& save_all, int latest) {
    progress_->begun = -1;
    progress_->finished = -1;
    const int status = in_child(
        [&] {
          save_all();
          return 0;
        },
        [&](pid_t child) {
          siginfo_t ended{};
          while (progress_->begun < 0 && ended.si_pid == 0) {
            ::usleep(100);
            ::waitid(
                P_PID,
                static_cast<id_t>(child),
                &ended,
                WEXITED | WNOHANG | WNOWAIT);
          }
          ::usleep(std::uniform_int_distribution<unsigned>(
              0, static_cast<unsigned>(latest))(random_));
          ::kill(child, SIGKILL);
        });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    within_ += progress_->begun != progress_->finished;
  }

  void begin(int64_t mark) {
    progress_->begun = mark;
  }
  void finish(int64_t mark) {
    progress_->finished = mark;
  }
  int64_t begun() const {
    return progress_->begun;
  }
  int64_t finished() const {
    return progress_->finished;
  }
  /// How many kills came between the beginning and the end of a save.
  int64_t within() const {
    return within_;
  }

 private:
  struct Progress {
    std::atomic<int64_t> begun{-1};
    std::atomic<int64_t> finished{-1};
  };
  Progress* progress_;
  std::mt19937 random_{17};
  int64_t within_ = 0;
};

class Interrupted : public testing::Test {
 protected:
  void SetUp() override {
    // A forked child must not wait for threads that it does not have.
    at::set_num_threads(1);
  }
};

TEST_F(Interrupted, KilledWhileSavingNumbered) {
  const TemporaryDirectory directory(killing_ground());
  Marked marked(kWidth);
  marked.mark(2); // As the last of three says.
  const int usual = time_of(
      [&] { save_state_numbered(directory.path(), 2, marked.state()); });
  Killed killed;
  int64_t newest = 2, unfinished = 0, pruned = 0;
  int before = 2;
  for (int round = 0; round < kills(); ++round) {
    killed.run(
        [&] {
          for (int64_t i = next_checkpoint_index(directory.path());; ++i) {
            marked.mark(static_cast<double>(i));
            killed.begin(i);
            save_state_numbered(directory.path(), 2, marked.state());
            killed.finish(i);
          }
        },
        latest(round, usual));
    unfinished += unfinished_in(directory.path()) > 0;
    int complete = 0;
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      complete += entry.path().filename().string().front() != '.';
    }
    // One more than the limit where the kill came before the old ones were
    // removed, and as many more as kills in a row came there.
    EXPECT_GE(complete, 1);
    EXPECT_LE(complete, std::max(3, before + 1));
    pruned += complete <= before;
    before = complete;
    const auto path = newest_checkpoint(directory.path(), Verify::kChecksums);
    ASSERT_TRUE(path);
    Marked loaded(kWidth);
    load_state(*path, loaded.state());
    const auto index = std::stoll(path->substr(path->rfind('_') + 1));
    EXPECT_EQ(loaded.marked(), static_cast<double>(index));
    // What was finished is there, and nothing that was not begun.
    EXPECT_GE(index, std::max(newest, killed.finished()));
    EXPECT_LE(index, killed.begun());
    newest = index;
  }
  // Otherwise nothing was tried.
  EXPECT_GE(killed.within(), kills() / 2);
  EXPECT_GE(unfinished, kills() / 10);
  EXPECT_GE(pruned, kills() / 10);
  std::cout << killed.within() << " of " << kills()
            << " kills came within a save, a save takes " << usual << " us\n";
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (entry.path().filename().string().front() != '.') {
      verify_checkpoint(entry.path().string());
    }
  }
  marked.mark(-1);
  save_state_numbered(directory.path(), 1, marked.state());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST_F(Interrupted, KilledWhileReplacing) {
  const TemporaryDirectory directory(killing_ground());
  const auto path = directory / "last";
  Marked marked(kWidth);
  marked.mark(0);
  const int usual = time_of([&] { save_state(path, marked.state()); });
  Killed killed;
  int64_t newest = 0, unfinished = 0;
  for (int round = 0; round < kills(); ++round) {
    killed.run(
        [&] {
          for (int64_t i = newest + 1;; ++i) {
            marked.mark(static_cast<double>(i));
            killed.begin(i);
            save_state(path, marked.state());
            killed.finish(i);
          }
        },
        latest(round, usual));
    unfinished += unfinished_in(directory.path()) > 0;
    verify_checkpoint(path);
    Marked loaded(kWidth);
    load_state(path, loaded.state());
    const auto mark = static_cast<int64_t>(loaded.marked());
    EXPECT_GE(mark, std::max(newest, killed.finished()));
    EXPECT_LE(mark, killed.begun());
    newest = mark;
  }
  EXPECT_GE(newest, kills() / 10);
  EXPECT_GE(killed.within(), kills() / 2);
  EXPECT_GE(unfinished, kills() / 10);
  std::cout << killed.within() << " of " << kills()
            << " kills came within a save, a save takes " << usual << " us\n";
}

/// The same while a thread writes and the program changes what was saved.
TEST_F(Interrupted, KilledWhileSavingInTheBackground) {
  const TemporaryDirectory directory(killing_ground());
  const auto path = directory / "last";
  const auto options = AcceleratorOptions().cpu(true);
  Marked marked(kWidth);
  marked.mark(0);
  const int usual = time_of([&] { save_state(path, marked.state()); });
  Killed killed;
  int64_t newest = 0, unfinished = 0;
  for (int round = 0; round < kills() / 2; ++round) {
    killed.run(
        [&] {
          Accelerator accelerator(options);
          AcceleratedOptimizer<torch::optim::Adam> optimizer(
              marked.model->parameters(), torch::optim::AdamOptions(0.1));
          accelerator.prepare(marked.model, optimizer);
          optimizer.step();
          for (int64_t i = newest + 1;; ++i) {
            marked.mark(static_cast<double>(i));
            killed.begin(i);
            accelerator.save_state(
                path, SaveStateOptions().asynchronous(true));
            // A save begins where the one before has ended.
            killed.finish(i - 1);
            marked.mark(static_cast<double>(-i));
          }
        },
        // A save in the background takes longer than `usual`, how much longer
        // depends on the machine: some kills come early, some after several.
        latest(round, usual));
    unfinished += unfinished_in(directory.path()) > 0;
    verify_checkpoint(path);
    Marked loaded(kWidth);
    load_state(path, loaded.state());
    const auto mark = loaded.model->parameters()[0][0][0].item<int64_t>();
    for (const auto& parameter : loaded.model->parameters()) {
      EXPECT_TRUE(torch::equal(
          parameter, torch::full_like(parameter, static_cast<double>(mark))));
    }
    EXPECT_GE(mark, std::max(newest, killed.finished()));
    EXPECT_LE(mark, killed.begun());
    newest = mark;
  }
  EXPECT_GE(newest, kills() / 10);
  EXPECT_GE(unfinished, kills() / 10);
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
