// Files of many pieces: what is written and read in parts comes together.

#include "support.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>
#include <accel/checkpoint/safetensors.h>

#include <sys/resource.h>

#include <csignal>

namespace fs = std::filesystem;

namespace accel::checkpoint::test {
namespace {

constexpr int64_t kMega = 1 << 20;

/// About 70 MB whose bytes tell where they belong: pieces of many sizes, of
/// which the last is as long as asked for.
StateDict tensors_with(int64_t last) {
  StateDict tensors;
  int64_t next = 0;
  const auto add = [&](const std::string& name, int64_t size) {
    auto values = torch::arange(next, next + size / 8 + 1, torch::kLong);
    next += values.numel();
    tensors.insert(
        name, values.view(torch::kByte).slice(0, 0, size).clone());
  };
  add("a", 17 * kMega + 3);
  add("b", 1);
  add("c", 8 * kMega);
  add("d", 4095);
  add("e", 38 * kMega - 7);
  add("z", last);
  return tensors;
}

TEST(LargeFile, HasTheBytesThatItWasGiven) {
  const TemporaryDirectory directory;
  const auto path = directory / "large.safetensors";
  const int64_t last = 8 * kMega;
  save_safetensors(tensors_with(last), path);
  // The header is as long for each of these: they have as many digits.
  const auto rest = static_cast<int64_t>(fs::file_size(path)) - 64 * kMega;
  ASSERT_GT(rest, 0);
  ASSERT_LT(rest, last);
  // The file ends with a piece of 8 MB, with a page, just behind and just before
  // one, and in the middle of one.
  for (const int64_t change :
       {8 * kMega - rest, 4096 - rest % 4096, 4097 - rest % 4096,
        4095 - rest % 4096, int64_t{1234}, -rest, -rest - 1}) {
    const auto tensors = tensors_with(last + change);
    save_safetensors(tensors, path);
    EXPECT_EQ(
        static_cast<int64_t>(fs::file_size(path)),
        64 * kMega + rest + change);
    const auto read = load_safetensors(path, /*copy=*/true);
    ASSERT_EQ(read.size(), tensors.size());
    for (const auto& item : tensors) {
      EXPECT_TRUE(identical(read[item.key()], item.value()))
          << item.key() << " with " << last + change << " at the end";
    }
  }
}

// More than one call can take, some of them empty, across many pieces.
TEST(LargeFile, OfManySmallTensorsIsWrittenAndHashedAtOnce) {
  const TemporaryDirectory directory;
  const auto path = directory / "saved";
  StateDict tensors;
  int64_t next = 0;
  for (int i = 0; i < 700; ++i) {
    const int64_t size = i % 7 == 0 ? 0 : 16384 + i;
    tensors.insert(
        "t" + std::to_string(i),
        torch::arange(next, next + size, torch::kLong));
    next += size;
  }
  ASSERT_GT(next * 8, 64 * kMega);
  write_checkpoint(path, {}, [&](CheckpointFiles& files) {
    files.write_tensors("t.safetensors", tensors);
  });
  verify_checkpoint(path);
  const auto read =
      load_safetensors(path + "/t.safetensors", /*copy=*/true);
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& item : tensors) {
    EXPECT_TRUE(identical(read[item.key()], item.value())) << item.key();
  }
}

// It is removed while the program goes on, and nothing of it stays.
TEST(LargeFile, OfACheckpointThatIsReplacedIsGoneInTheEnd) {
  const TemporaryDirectory directory;
  Accelerator accelerator(AcceleratorOptions().cpu(true));
  torch::nn::Linear model(4200, 4200); // 70 MB
  accelerator.prepare(model);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    model->weight.fill_(i);
    accelerator.save_state(directory / "saved");
  }
  model->weight.fill_(-1);
  accelerator.load_state(directory / "saved");
  EXPECT_EQ(model->weight[0][0].item<float>(), 2);
  accelerator.wait_for_checkpoint();
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

TEST(LargeFile, TakesThePlaceOfAnotherOneOnlyWhenItIsThere) {
  const TemporaryDirectory directory;
  const auto path = directory / "large.safetensors";
  StateDict small;
  small.insert("small", torch::ones({3}));
  save_safetensors(small, path);
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 30 * kMega;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto error =
      error_of([&] { save_safetensors(tensors_with(8 * kMega), path); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  EXPECT_NE(error.find("large.safetensors"), std::string::npos) << error;
  EXPECT_EQ(load_safetensors(path, /*copy=*/true).size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
}

} // namespace
} // namespace accel::checkpoint::test
