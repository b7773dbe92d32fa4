#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "config_file.h"
#include "environment.h"
#include "error.h"
#include "gpus.h"
#include "layout.h"

namespace accel::launcher {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string memory() {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) {
    return "unknown";
  }
  const double gib = 1024.0 * 1024 * 1024;
  char text[64];
  std::snprintf(
      text,
      sizeof(text),
      "%.1f GiB, of which %.1f free",
      static_cast<double>(info.totalram) * info.mem_unit / gib,
      static_cast<double>(info.freeram) * info.mem_unit / gib);
  return text;
}

/// Prefixes of the variables that change what a launch or a program does.
bool matters(const std::string& entry) {
  for (const char* prefix :
       {"ACCEL",        "CUDA_",   "FSDP_",        "GLOO_",        "LD_LIBRARY_PATH=",
        "LD_PRELOAD=",  "LOCAL_",  "MASTER_",      "MEGATRON_LM_",  "NCCL_",
        "OMPI_COMM_",   "OMP_",    "MKL_",         "PARALLELISM_CONFIG_",  "PMI_",
        "RANK=",        "SLURM_",  "TORCH",        "WORLD_SIZE="}) {
    if (entry.rfind(prefix, 0) == 0) {
      return true;
    }
  }
  return false;
}

} // namespace

int env_command(const std::vector<std::string>& arguments) {
  CLI::App command("Prints what a bug report needs.", "env");
  set_help(
      command,
      "[OPTIONS]",
      "Example:\n  accel env > report.txt\n\nRead it before you send it: it "
      "has the values of environment variables.");
  std::string config_path;
  command
      .add_option(
          "--config-file",
          config_path,
          "The configuration to show; if not given the one that accel launch "
          "reads")
      ->type_name("FILE");
  if (!parse_arguments(command, arguments)) {
    return 0;
  }
  std::error_code none;
  const std::string executable =
      std::filesystem::read_symlink("/proc/self/exe", none).string();
  struct utsname system = {};
  ::uname(&system);
  const auto line = [](const std::string& name, const std::string& value) {
    std::cout << "- " << name << ": " << (value.empty() ? "unknown" : value)
              << "\n";
  };
  line("accel", kVersion);
  line("command", executable);
  line(
      "LibTorch",
      std::string(kTorchVersion) + ", " +
          (*kTorchRoot ? kTorchRoot : "of a package: ACCEL_LIBTORCH names it"));
  line("compiler", __VERSION__);
  line("system", look_up("/etc/os-release", "PRETTY_NAME", '='));
  line(
      "kernel",
      std::string(system.sysname) + " " + system.release + " " +
          system.machine);
  line("processor", look_up("/proc/cpuinfo", "model name", ':'));
  line("cores that may be used", std::to_string(available_cores()));
  line("memory", memory());
  line(
      "shared memory",
      std::filesystem::exists("/dev/shm", none)
          ? std::to_string(
                std::filesystem::space("/dev/shm", none).available >> 20) +
                " MiB free"
          : "none");
  const auto found = gpus();
  if (found.empty()) {
    line("GPUs", "none with NVIDIA's driver");
  }
  for (const std::string& gpu : found) {
    line("GPU", gpu);
  }
  if (!found.empty()) {
    line("NVIDIA driver", first_line("/proc/driver/nvidia/version"));
  }
  line(
      "programs use GPUs",
      kTorchHasCuda ? "yes" : "no, accel was built against a LibTorch without CUDA, or with ACCEL_CUDA=OFF");
  const std::string path =
      config_path.empty() ? default_config_path() : config_path;
  const bool there = !path.empty() && ::access(path.c_str(), R_OK) == 0;
  if (!there && !config_path.empty()) {
    throw Error(kLauncherFailed, "cannot read " + config_path);
  }
  line("configuration", there ? path : "none");
  if (there) {
    std::ifstream file(path);
    for (std::string text; std::getline(file, text);) {
      std::cout << "    " << text << "\n";
    }
  }
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    if (matters(*entry)) {
      variables.emplace_back(*entry);
    }
  }
  std::sort(variables.begin(), variables.end());
  std::cout << "- environment:"
            << (variables.empty() ? " nothing that matters" : "") << "\n";
  for (const std::string& variable : variables) {
    std::cout << "    " << variable << "\n";
  }
  return 0;
}

} // namespace accel::launcher
