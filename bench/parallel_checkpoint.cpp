// save_state and load_state of a divided model (FULL_SHARD with Adam, in parts:
// SHARDED_STATE_DICT) against plain writes and plain reads of files of the same
// sizes by the same processes, in one interleaved run.
//
//   accel launch -n 2 --output main -- ./parallel_checkpoint DIRECTORY
//       [--megabytes N] [--rounds N] [--from memory|disk]
//
// Each process writes plainly what it writes of a checkpoint, and syncs each
// file; when all have, process 0 syncs the directory, renames it, and syncs its
// parent, as save_state does; what was replaced is removed after that, as by
// save_state, and does not count. The plain read reads into memory that is there
// already, as load_state does. `--from disk` takes the files out of the system's
// memory before each read, as after a restart on another day; without it they have
// just been written. Times are from when all processes begin to when all are done.
//
// A disk that others use, too, takes between one and five times as long for the
// same bytes: the least times are printed beside the medians. Where others use the
// processor, the time that the main process has had of it says more: it is printed
// as well.

#include "plain_files.h"

#include <accel/accel.h>

#include <torch/torch.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace bench;

struct File {
  std::string name;
  torch::Tensor bytes;
};

/// What one piece of work has taken in each round.
struct Times {
  std::vector<double> seconds;
  std::vector<double> processor;
};

void print_times(
    const char* ours, const Times& a, const char* peer, const Times& b) {
  print_pair(ours, a.seconds, peer, b.seconds);
  std::printf(
      "  of the processor: ratio %.3f (least: %.3f)\n",
      median(a.processor) / median(b.processor),
      least(a.processor) / least(b.processor));
}

/// Files of the names and sizes of those that this process has written of a
/// checkpoint.
std::vector<File> files_of(const fs::path& checkpoint, int64_t process) {
  const auto is_of = [](const std::string& name, int64_t one) {
    const auto number = std::to_string(one) + ".";
    return name.find("process_" + number) != std::string::npos ||
           name.find("random_states_" + number) != std::string::npos;
  };
  std::vector<File> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const auto name = entry.path().filename().string();
    const bool common = name.find("process_") == std::string::npos &&
                        name.find("random_states_") == std::string::npos;
    if (is_of(name, process) || (common && process == 0)) {
      files.push_back(
          {name,
           torch::randint(
               256, {static_cast<int64_t>(entry.file_size())}, torch::kByte)});
    }
  }
  return files;
}

/// Where what was written before is until it is removed.
fs::path replaced(const fs::path& directory) {
  return directory.string() + ".replaced";
}

void plain_write(
    accel::Accelerator& accelerator,
    const fs::path& directory,
    const std::vector<File>& files,
    bool sync) {
  const fs::path temporary = directory.string() + ".temporary";
  fs::create_directory(temporary); // or another process has
  for (const auto& file : files) {
    const int fd = ::open(
        (temporary / file.name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    require(fd >= 0, "open");
    write_all(fd, file.bytes);
    require((!sync || ::fsync(fd) == 0) && ::close(fd) == 0, "fsync");
  }
  accelerator.wait_for_everyone();
  if (accelerator.is_main_process()) {
    if (sync) {
      sync_directory(temporary);
    }
    if (fs::exists(directory)) {
      fs::rename(directory, replaced(directory));
    }
    fs::rename(temporary, directory);
    if (sync) {
      sync_directory(directory.parent_path());
    }
  }
}

void plain_read(const fs::path& directory, std::vector<File>& files) {
  for (auto& file : files) {
    const int fd = ::open((directory / file.name).c_str(), O_RDONLY);
    require(fd >= 0, "open");
    read_all(fd, file.bytes);
    ::close(fd);
  }
}

} // namespace

int main(int argc, char** argv) {
  int megabytes = 1000;
  int rounds = 5;
  bool from_disk = false;
  bool understood = argc >= 2 && argc % 2 == 0;
  for (int i = 2; understood && i < argc; i += 2) {
    const std::string option = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (option == "--megabytes" && value > 0) {
      megabytes = std::max(64, value);
    } else if (option == "--rounds" && value > 0) {
      rounds = value;
    } else if (
        option == "--from" && (std::string(argv[i + 1]) == "disk" ||
                               std::string(argv[i + 1]) == "memory")) {
      from_disk = std::string(argv[i + 1]) == "disk";
    } else {
      understood = false;
    }
  }
  if (!understood) {
    std::fprintf(
        stderr,
        "usage: parallel_checkpoint DIRECTORY [--megabytes N] [--rounds N] "
        "[--from memory|disk]\n");
    return 2;
  }
  torch::set_num_threads(1);
  accel::Accelerator accelerator(
      accel::AcceleratorOptions()
          .cpu(true)
          .match_single_device(true)
          .fsdp_plugin(
              accel::FullyShardedDataParallelPlugin()
                  .sharding_strategy(accel::ShardingStrategy::kFullShard)
                  .state_dict_type(accel::StateDictType::kShardedStateDict)));
  // Layers of 16 MB: a third of the state parameters, two thirds Adam's averages.
  torch::nn::Sequential model;
  for (int i = 0; i < megabytes / 48; ++i) {
    model->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(2000, 2000).bias(false)));
  }
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      model->parameters(), torch::optim::AdamOptions(0.1));
  accelerator.prepare(model, optimizer);
  const auto batch = accelerator.distribute(torch::rand({2, 2000}));
  accelerator.backward(model->forward(batch).mean());
  optimizer.step(); // It has averages from here on.
  optimizer.zero_grad();

  const fs::path root = argv[1];
  fs::create_directories(root);
  const auto state = (root / "accel").string();
  const auto plain = root / "plain";
  accelerator.save_state(state);
  auto files = files_of(state, accelerator.process_index());
  const auto timed = [&](const auto& work, Times& times) {
    accelerator.wait_for_everyone();
    const auto processor = std::clock();
    times.seconds.push_back(seconds([&] {
      work();
      accelerator.wait_for_everyone();
    }));
    times.processor.push_back(
        static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC);
  };
  const auto save = [&] { accelerator.save_state(state); };
  const auto save_unsynced = [&] {
    accelerator.save_state(state, accel::SaveStateOptions().sync(false));
  };
  const auto load = [&] { accelerator.load_state(state); };
  const auto load_unverified = [&] {
    accelerator.load_state(
        state, accel::LoadStateOptions().verify_checksums(false));
  };
  const auto write = [&] { plain_write(accelerator, plain, files, true); };
  const auto write_unsynced = [&] {
    plain_write(accelerator, plain, files, false);
  };
  const auto read = [&] { plain_read(plain, files); };
  // What was replaced is gone, and the disk has nothing to do, when the next one
  // begins.
  const auto rest = [&] {
    accelerator.wait_for_checkpoint();
    if (accelerator.is_main_process()) {
      fs::remove_all(replaced(plain));
      ::sync();
    }
    accelerator.wait_for_everyone();
  };
  // Where the next read finds the files.
  const auto begin_reading = [&](const fs::path& directory) {
    if (from_disk && accelerator.is_main_process()) {
      forget(directory);
    }
    accelerator.wait_for_everyone();
  };
  // Until now one checkpoint has been written: from the second one on the system
  // has memory for files and their successors.
  write();
  rest();
  write();
  save();
  rest();
  Times saves, unsynced, loads, unverified, writes, unsynced_writes, reads;
  for (int round = 0; round < rounds; ++round) {
    timed(write_unsynced, unsynced_writes);
    rest();
    timed(save_unsynced, unsynced);
    rest();
    timed(write, writes);
    rest();
    timed(save, saves);
    rest();
    begin_reading(plain);
    timed(read, reads);
    begin_reading(state);
    timed(load, loads);
    begin_reading(state);
    timed(load_unverified, unverified);
  }
  if (accelerator.is_main_process()) {
    std::printf(
        "%d MB in parts, read from %s\n",
        megabytes,
        from_disk ? "disk" : "memory");
    print_times("save_state", saves, "plain write", writes);
    print_times(
        "save_state without sync",
        unsynced,
        "plain write without sync",
        unsynced_writes);
    print_times("load_state", loads, "plain read", reads);
    print_times("load_state without checksums", unverified, "plain read", reads);
    fs::remove_all(plain);
    fs::remove_all(state);
  }
  return 0;
}
