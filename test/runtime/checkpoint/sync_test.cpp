// What is waited for: this program's own fsync and sync_file_range count how
// often, and for what, the library calls them, before they call the system.

#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<int> syncs{0};
std::atomic<int64_t> begun_bytes{0};

} // namespace

extern "C" int fsync(int fd) {
  ++syncs;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int sync_file_range(
    int fd, off64_t offset, off64_t size, unsigned int flags) {
  begun_bytes += size;
  return static_cast<int>(
      ::syscall(SYS_sync_file_range, fd, offset, size, flags));
}

namespace accel::checkpoint::test {
namespace {

struct Waited {
  int syncs;
  int64_t begun_bytes;
};

template <typename Save>
Waited waited_in(const Save& save) {
  ::syncs = 0;
  ::begun_bytes = 0;
  save();
  return {::syncs, ::begun_bytes};
}

TEST(AcceleratorCheckpoint, WithoutSyncNothingWaitsForTheDisk) {
  const TemporaryDirectory directory;
  Accelerator accelerator(AcceleratorOptions().cpu(true));
  torch::nn::Linear model(1500, 1500); // 9 MB
  accelerator.prepare(model);
  accelerator.register_save_state_pre_hook(
      [](const auto&, const std::string& temporary) {
        std::filesystem::create_directory(temporary + "/hook");
        write_file(temporary + "/hook/own", "mine");
      });
  const auto save = [&](const std::string& name, SaveStateOptions options) {
    return waited_in([&] {
      accelerator.save_state(directory / name, options);
      accelerator.wait_for_checkpoint();
    });
  };
  const auto synced = save("synced", {});
  const auto later = save("later", SaveStateOptions().sync(false));
  const auto background =
      save("background", SaveStateOptions().sync(false).asynchronous(true));
  // One that takes the place of another one, too.
  const auto again = save("later", SaveStateOptions().sync(false));
  EXPECT_EQ(later.syncs, 0);
  EXPECT_EQ(later.begun_bytes, 0);
  EXPECT_EQ(background.syncs, 0);
  EXPECT_EQ(again.syncs, 0);

  const auto files = verify_checkpoint(directory / "synced").files;
  // Each file, the manifest, the hook's directory, the checkpoint, its parent.
  EXPECT_GE(synced.syncs, static_cast<int>(files.size()) + 4);
  // The disk has begun with the model while it was written.
  EXPECT_EQ(synced.begun_bytes, 8 << 20);
  for (const auto* other : {"later", "background"}) {
    verify_checkpoint(directory / other);
    for (const auto& file : files) {
      EXPECT_EQ(
          read_file(directory / (std::string(other) + "/" + file.name)),
          read_file(directory / ("synced/" + file.name)))
          << other << " " << file.name;
    }
  }
}

} // namespace
} // namespace accel::checkpoint::test
