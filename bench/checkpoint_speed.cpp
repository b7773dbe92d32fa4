// save_state and load_state against a plain write and a plain read of the same
// bytes, in one interleaved run: the medians are compared. The plain write
// syncs as often as save_state does (each file, the directory, its parent) and
// renames at the end; once more, neither syncs. The plain read reads into memory that is there already,
// as load_state does.
//
//   checkpoint_speed DIRECTORY [--megabytes N] [--rounds N] [--from memory|disk]
//                    [--only accel]
//
// A disk that others use, too, takes between one and five times as long for the
// same bytes: with --from disk, ask for many rounds and look at the least, which
// are printed beside the medians.
//
// The state is that of a training with Adam: a third of it parameters, two
// thirds the optimizer's averages. `--from disk` takes the files out of the
// system's memory before each read, as after a restart on another day; without
// it they have just been written.
//
// With `--only accel` it prints the median seconds of save_state, of save_state
// that does not sync, of load_state, of load_state without checksums, and of how
// long the program stands still for a save in the background, for
// checkpoint_accelerate.py.

#include "plain_files.h"

#include <accel/accel.h>
#include <accel/checkpoint/directory.h>

#include <torch/torch.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace bench;

/// All tensors into one file, the small files beside it.
void plain_write(
    const fs::path& directory,
    const std::vector<torch::Tensor>& tensors,
    int small_files,
    bool sync) {
  const fs::path temporary = directory.string() + ".temporary";
  fs::create_directory(temporary);
  for (int i = 0; i <= small_files; ++i) {
    const int fd = ::open(
        (temporary / std::to_string(i)).c_str(),
        O_WRONLY | O_CREAT | O_TRUNC,
        0666);
    require(fd >= 0, "open");
    if (i == 0) {
      for (const auto& tensor : tensors) {
        write_all(fd, tensor);
      }
    } else {
      require(::write(fd, "small", 5) == 5, "write");
    }
    require((!sync || ::fsync(fd) == 0) && ::close(fd) == 0, "fsync");
  }
  if (sync) {
    sync_directory(temporary);
  }
  fs::remove_all(directory);
  fs::rename(temporary, directory);
  if (sync) {
    sync_directory(directory.parent_path());
  }
}

void plain_read(const fs::path& directory, std::vector<torch::Tensor>& tensors) {
  const int fd = ::open((directory / "0").c_str(), O_RDONLY);
  require(fd >= 0, "open");
  for (auto& tensor : tensors) {
    read_all(fd, tensor);
  }
  ::close(fd);
}

} // namespace

int main(int argc, char** argv) {
  const auto usage = [] {
    std::fprintf(
        stderr,
        "usage: checkpoint_speed DIRECTORY [--megabytes N] [--rounds N] "
        "[--from memory|disk] [--only accel]\n");
    return 2;
  };
  if (argc < 2 || argc % 2 != 0) {
    return usage();
  }
  int megabytes = 1000;
  int rounds = 5;
  bool only_accel = false;
  bool from_disk = false;
  for (int i = 2; i < argc; i += 2) {
    const std::string option = argv[i];
    const std::string value = argv[i + 1];
    if (option == "--megabytes" && std::atoi(argv[i + 1]) > 0) {
      megabytes = std::max(64, std::atoi(argv[i + 1]));
    } else if (option == "--rounds" && std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[i + 1]);
    } else if (option == "--from" && (value == "disk" || value == "memory")) {
      from_disk = value == "disk";
    } else if (option == "--only" && value == "accel") {
      only_accel = true;
    } else {
      std::fprintf(
          stderr, "not understood: %s %s\n", option.c_str(), value.c_str());
      return usage();
    }
  }
  accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  // Layers of 16 MB.
  torch::nn::Sequential model;
  for (int i = 0; i < megabytes / 48; ++i) {
    model->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(2000, 2000).bias(false)));
  }
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      model->parameters(), torch::optim::AdamOptions(0.1));
  accelerator.prepare(model, optimizer);
  std::vector<torch::Tensor> copies;
  for (auto& parameter : model->parameters()) {
    parameter.mutable_grad() = torch::rand_like(parameter);
    for (int i = 0; i < 3; ++i) {
      copies.push_back(parameter.detach().clone());
    }
  }
  optimizer.step(); // It has averages from here on.
  optimizer.zero_grad();
  const fs::path root = argv[1];
  fs::create_directories(root);
  const auto state = (root / "accel").string();
  const auto plain = root / "plain";
  const auto save = [&] { accelerator.save_state(state); };
  const auto load = [&] { accelerator.load_state(state); };
  const auto load_unverified = [&] {
    accelerator.load_state(
        state, accel::LoadStateOptions().verify_checksums(false));
  };
  const auto save_unsynced = [&] {
    accelerator.save_state(state, accel::SaveStateOptions().sync(false));
  };
  const auto write = [&] { plain_write(plain, copies, 7, true); };
  const auto write_unsynced = [&] { plain_write(plain, copies, 7, false); };
  const auto read = [&] { plain_read(plain, copies); };
  // Twice: from then on the system has memory for a file and its successor,
  // which costs a virtual machine much when it is used for the first time.
  for (int i = 0; i < 2; ++i) {
    save();
    accelerator.wait_for_checkpoint();
    if (!only_accel) {
      write();
    }
  }
  std::vector<double> saves, unsynced, loads, unverified, copying;
  std::vector<double> writes, unsynced_writes, reads;
  // What was replaced is gone, and the disk has nothing to do, when the next one
  // begins.
  const auto rest = [&] {
    accelerator.wait_for_checkpoint();
    ::sync();
  };
  for (int round = 0; round < rounds; ++round) {
    if (!only_accel) {
      unsynced_writes.push_back(seconds(write_unsynced));
      rest();
    }
    unsynced.push_back(seconds(save_unsynced));
    rest();
    if (!only_accel) {
      writes.push_back(seconds(write));
    }
    saves.push_back(seconds(save));
    rest();
    if (!only_accel) {
      if (from_disk) {
        forget(plain);
      }
      reads.push_back(seconds(read));
    }
    if (from_disk) {
      forget(state);
    }
    loads.push_back(seconds(load));
    if (from_disk) {
      forget(state);
    }
    unverified.push_back(seconds(load_unverified));
    // How long training stands still for a save in the background.
    copying.push_back(seconds([&] {
      accelerator.save_state(
          state, accel::SaveStateOptions().asynchronous(true));
    }));
    rest();
  }
  if (only_accel) {
    std::printf(
        "%.4f %.4f %.4f %.4f %.4f\n",
        median(saves),
        median(unsynced),
        median(loads),
        median(unverified),
        median(copying));
  } else {
    std::printf("%d MB, read from %s\n", megabytes, from_disk ? "disk" : "memory");
    print_pair("save_state", saves, "plain write", writes);
    print_pair(
        "save_state without sync",
        unsynced,
        "plain write without sync",
        unsynced_writes);
    print_pair("load_state", loads, "plain read", reads);
    print_pair(
        "load_state without checksums", unverified, "plain read", reads);
    std::printf(
        "asynchronous save_state: training stands still for %.3f s\n",
        median(copying));
  }
  fs::remove_all(plain);
  fs::remove_all(state);
}
