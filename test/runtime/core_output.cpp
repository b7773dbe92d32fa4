#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <unistd.h>

using accel::Accelerator;
using accel::test::run_and_expect_success;

namespace {

enum class Color : uint8_t { kRed, kGreen };

struct Point {
  double x;
  int32_t y;
};

/// A file's name that the processes of a run share.
std::string shared_path() {
  return testing::TempDir() + "accel_output_" + std::getenv("MASTER_PORT");
}

} // namespace

ACCEL_RANK_FUNCTION(broadcasts_objects) {
  Accelerator accelerator;
  const auto rank = accelerator.process_index();
  errno = EEXIST;
  EXPECT_EQ(accelerator.broadcast_object(rank + 5), 5);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(accelerator.broadcast_object(0.1 * static_cast<double>(rank)), 0.0);
  EXPECT_TRUE(accelerator.broadcast_object(rank == 0));
  EXPECT_EQ(
      accelerator.broadcast_object(rank == 0 ? Color::kGreen : Color::kRed),
      Color::kGreen);
  const auto point = accelerator.broadcast_object(
      Point{static_cast<double>(rank), static_cast<int32_t>(rank)});
  EXPECT_EQ(point.x, 0.0);
  EXPECT_EQ(point.y, 0);
  // Of another process, and strings of different lengths.
  const auto last = accelerator.num_processes() - 1;
  EXPECT_EQ(accelerator.broadcast_object(rank, last), last);
  EXPECT_EQ(
      accelerator.broadcast_object(std::string(static_cast<size_t>(3 + rank), 'x')),
      "xxx");
  EXPECT_EQ(
      accelerator.broadcast_object(rank == 0 ? std::string() : "something"), "");
  // Vectors, of any length on each.
  EXPECT_EQ(
      accelerator.broadcast_object(
          std::vector<double>(static_cast<size_t>(2 + rank), 0.5 + rank)),
      (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(
      accelerator.broadcast_object(
          std::vector<int64_t>(static_cast<size_t>(rank), 7)),
      std::vector<int64_t>());
}

ACCEL_RANK_FUNCTION(writes_one_file) {
  Accelerator accelerator;
  const auto rank = std::to_string(accelerator.process_index());
  const std::string path = shared_path();
  {
    std::ofstream file(accelerator.main_process_path(path));
    EXPECT_TRUE(file.is_open());
    file << "stream of " << rank << '\n';
    EXPECT_TRUE(file.good());
  }
  {
    std::FILE* file = std::fopen(accelerator.main_process_path(path.c_str()), "a");
    ASSERT_NE(file, nullptr);
    std::fprintf(file, "file of %s\n", rank.c_str());
    EXPECT_EQ(std::fclose(file), 0);
  }
  // Archives seek and write in pieces.
  torch::save(
      torch::ones({3}), accelerator.main_process_path(path + ".pt"));
  torch::serialize::OutputArchive archive;
  archive.write("x", torch::ones({3}));
  archive.save_to(accelerator.main_process_path(path + ".archive"));
  accelerator.wait_for_everyone();
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, "stream of 0\nfile of 0\n");
  torch::Tensor loaded;
  torch::load(loaded, path + ".pt");
  EXPECT_TRUE(torch::equal(loaded, torch::ones({3})));
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    for (const char* ending : {"", ".pt", ".archive"}) {
      EXPECT_TRUE(std::filesystem::remove(path + ending)) << ending;
    }
  }
  EXPECT_EQ(
      accelerator.main_process_path(std::filesystem::path("a") / "b").string(),
      accelerator.is_main_process() ? "a/b" : "/dev/null");
}

ACCEL_RANK_FUNCTION(reads_what_it_wrote) {
  Accelerator accelerator;
  const std::string path = shared_path();
  const auto read = [](const std::string& name) {
    std::ifstream file(name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  // Nobody finds the file that process 0, which is ahead, writes next.
  const auto ask_late = [&](const std::string& name) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(accelerator.is_main_process() ? 0 : 200));
    EXPECT_FALSE(std::filesystem::exists(accelerator.readable_path(name)));
  };
  const std::string saved = path + ".pt";
  ask_late(saved);
  accelerator.save(torch::ones(3), saved);
  EXPECT_TRUE(std::filesystem::exists(accelerator.readable_path(saved)));
  // By a name that is not yet that of a file.
  ask_late(std::filesystem::proximate(path).string());
  for (const std::string text : {"first", "second"}) {
    {
      std::ofstream file(accelerator.main_process_path(path));
      // The others would be there long before.
      std::this_thread::sleep_for(
          std::chrono::milliseconds(accelerator.is_main_process() ? 200 : 0));
      file << text;
    }
    // Under another name; and late, while process 0 goes on to write again.
    const auto other = std::filesystem::path(path).parent_path() / "." /
        std::filesystem::path(path).filename();
    const auto found = accelerator.readable_path(other);
    EXPECT_EQ(found, other);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(accelerator.is_main_process() ? 0 : 200));
    EXPECT_EQ(read(found.string()), text);
  }
  // A folder that is listed has all that was written into it, and nothing that
  // process 0 writes next.
  const std::string folder = path + ".folder";
  std::filesystem::create_directories(folder);
  for (int round = 1; round < 4; ++round) {
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(accelerator.is_main_process() ? 50 : 0));
      std::ofstream file(accelerator.main_process_path(
          folder + "/" + std::to_string(round) + std::to_string(i)));
    }
    const auto listed = accelerator.readable_path(folder);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(accelerator.is_main_process() ? 0 : 100));
    const std::filesystem::directory_iterator begin(listed), end;
    EXPECT_EQ(std::distance(begin, end), 2 * round);
  }
  // On threads that read ahead, while process 0 is still writing; twice.
  for (const std::string text : {"third", "fourth"}) {
    {
      std::ofstream file(accelerator.main_process_path(path));
      std::this_thread::sleep_for(
          std::chrono::milliseconds(accelerator.is_main_process() ? 200 : 0));
      file << text;
    }
    for (int reader = 0; reader < 2; ++reader) {
      std::string found;
      std::thread([&] { found = read(accelerator.readable_path(path)); }).join();
      EXPECT_EQ(found, text);
    }
  }
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    EXPECT_TRUE(std::filesystem::remove(path));
    EXPECT_TRUE(std::filesystem::remove(saved));
    EXPECT_EQ(std::filesystem::remove_all(folder), 7u);
  }
}

/// A layer that takes its first values from a batch.
ACCEL_RANK_FUNCTION(saves_values_of_a_batch) {
  Accelerator accelerator(
      accel::AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(4);
  torch::nn::Linear net(4, 7);
  net->register_buffer("seen", torch::zeros({7, 4}));
  const auto data = torch::rand({7, 4});
  const auto x = accelerator.distribute(data);
  net->bias.set_data(x.mean(1).detach()); // cut
  net->weight.set_data(x.mm(x.t().mm(x)).detach());
  net->named_buffers()["seen"].set_data(x);
  const auto path = shared_path() + ".pt";
  accelerator.save(net, path);
  accelerator.wait_for_everyone();
  EXPECT_EQ(accel::distributed::is_distributed(net->bias), accelerator.use_distributed());
  torch::nn::Linear read(4, 7);
  read->register_buffer("seen", torch::zeros({7, 4}));
  torch::load(read, path);
  EXPECT_TRUE(read->bias.allclose(data.mean(1)));
  EXPECT_TRUE(read->weight.allclose(data.mm(data.t()).mm(data)));
  EXPECT_TRUE(read->named_buffers()["seen"].equal(data));
  accelerator.save({x, torch::ones({2})}, path + ".list");
  accelerator.wait_for_everyone();
  std::vector<torch::Tensor> list;
  torch::load(list, path + ".list");
  ASSERT_EQ(list.size(), 2);
  EXPECT_TRUE(list[0].equal(data));
}

ACCEL_RANK_FUNCTION(talks_to_a_command) {
  Accelerator accelerator;
  const std::string path = shared_path();
  const std::string command = "cat >" + path;
  // More than a pipe holds.
  std::FILE* pipe =
      ::popen(accelerator.main_process_command(command.c_str()), "w");
  ASSERT_NE(pipe, nullptr);
  const std::string line(1000, 'x');
  for (int i = 0; i < 200; ++i) {
    EXPECT_GT(std::fprintf(pipe, "%s", line.c_str()), 0);
  }
  EXPECT_EQ(::pclose(pipe), 0);
  accelerator.wait_for_everyone();
  EXPECT_EQ(std::filesystem::file_size(path), 200'000u);
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    EXPECT_TRUE(std::filesystem::remove(path));
  }
}

ACCEL_RANK_FUNCTION(prints_to_stdout) {
  Accelerator accelerator;
  EXPECT_GT(
      std::fprintf(
          accelerator.c_stdout(), "rank %d\n", static_cast<int>(accelerator.process_index())),
      0);
  EXPECT_EQ(accelerator.c_stderr() == stderr, accelerator.is_main_process());
  EXPECT_GE(std::fputs("not the others\n", accelerator.c_stderr()), 0);
}

TEST(BroadcastObject, OneAndThreeProcesses) {
  accel::test::run_and_expect_success("broadcasts_objects", 1);
  accel::test::run_and_expect_success("broadcasts_objects", 3);
}

TEST(Save, PutsValuesOfABatchTogether) {
  run_and_expect_success("saves_values_of_a_batch", 1);
  run_and_expect_success("saves_values_of_a_batch", 3);
}

TEST(Save, NamesTheFileThatCannotBeWritten) {
  Accelerator accelerator;
  const auto error = accel::test::error_of([&] {
    accelerator.save(torch::ones({2}), "/no/such/folder/ones.pt");
  });
  EXPECT_TRUE(accel::test::contains(error, "accel: /no/such/folder/ones.pt could not be"))
      << error;
  torch::nn::Linear net(2, 2);
  EXPECT_TRUE(accel::test::contains(
      accel::test::error_of([&] {
        accelerator.save(net, std::string("/no/such/folder/net.pt"));
      }),
      "accel: /no/such/folder/net.pt could not be"));
}

TEST(MainProcessPath, OneProcessWrites) {
  accel::test::run_and_expect_success("writes_one_file", 1);
  accel::test::run_and_expect_success("writes_one_file", 2);
}

TEST(ReadablePath, WaitsForWhatTheProgramWrote) {
  accel::test::run_and_expect_success("reads_what_it_wrote", 1);
  accel::test::run_and_expect_success("reads_what_it_wrote", 3);
}

TEST(MainProcessCommand, OneProcessTalks) {
  accel::test::run_and_expect_success("talks_to_a_command", 1);
  accel::test::run_and_expect_success("talks_to_a_command", 2);
}

TEST(CStdout, OneProcessPrints) {
  const auto results = accel::test::run_and_expect_success("prints_to_stdout", 2);
  EXPECT_EQ(results[0].output, "rank 0\n");
  EXPECT_EQ(results[1].output, "");
  EXPECT_NE(results[0].error.find("not the others"), std::string::npos);
  EXPECT_EQ(results[1].error.find("not the others"), std::string::npos);
}
