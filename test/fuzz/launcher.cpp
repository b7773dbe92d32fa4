// What the launcher reads: its arguments, configuration files, variables of
// batch systems, and the headers of model files.

#include "fuzz.h"

#include "batch_hosts.h"
#include "config_file.h"
#include "core/plain_text.h"
#include "error.h"
#include "launch_command.h"
#include "safetensors_files.h"
#include "settings.h"

namespace {

using accel::fuzz::refused;
using accel::fuzz::require;
using accel::launcher::Error;

} // namespace

ACCEL_FUZZ_TARGET(launch) {
  // No configuration of this machine's.
  ::setenv("XDG_CONFIG_HOME", accel::fuzz::scratch().c_str(), 1);
  ::unsetenv("ACCEL_CONFIG_FILE");
  const auto arguments = accel::fuzz::pieces(input, 1);
  for (const auto& argument : arguments) {
    if (argument.find("/dev/") != std::string::npos ||
        argument.find("/proc/") != std::string::npos) {
      return; // Files that never end are the user's own affair.
    }
  }
  refused<Error>([&] {
    const auto options = accel::launcher::parse_launch(arguments);
    if (options) {
      require(!options->program.empty(), "there is a program to start");
      require(options->num_processes >= 1, "there is a process to start");
    }
  });
}

ACCEL_FUZZ_TARGET(config) {
  const auto path = accel::fuzz::file_with("config.yaml", input);
  refused<Error>([&] {
    const auto config = accel::launcher::read_config(path);
    // What we write of it we read again.
    const auto copy = accel::fuzz::file_with(
        "copy.yaml", accel::launcher::config_text(config.values));
    require(
        accel::launcher::read_config(copy).values == config.values,
        "a configuration that is written is read as it was");
  });
}

ACCEL_FUZZ_TARGET(hosts) {
  const auto texts = accel::fuzz::pieces(input, 7);
  int i = 0;
  for (const char* name :
       {"SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NUM_NODES",
        "SLURM_NODEID",
        "SLURM_STEP_NODELIST",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_RANK"}) {
    const auto& text = texts[static_cast<size_t>(i++)];
    text.empty() ? ::unsetenv(name) : ::setenv(name, text.c_str(), 1);
  }
  refused<Error>([&] {
    const auto hosts = accel::launcher::find_batch_hosts();
    require(!hosts || hosts->machines > 1, "several hosts, or none");
    require(
        !hosts || (hosts->port == 0 || (hosts->port >= 1024 && hosts->port < 65536)),
        "a port that can be used");
  });
  const std::string list(input);
  require(
      accel::detail::first_host(list).size() <= list.size(),
      "a host's name is no longer than the list");
  accel::detail::flag_in(list);
}

ACCEL_FUZZ_TARGET(model_files) {
  const auto path = accel::fuzz::file_with("model.safetensors", input);
  refused<Error>([&] {
    const auto model = accel::launcher::read_model_files(path);
    uint64_t bytes = 0;
    for (const auto& tensor : model.tensors) {
      require(
          tensor.position + tensor.bytes <= input.size(),
          "a tensor lies within its file");
      bytes += tensor.bytes;
    }
    require(bytes < input.size(), "tensors do not overlap");
    accel::launcher::write_merged(
        model, (accel::fuzz::scratch() / "merged.safetensors").string());
  });
}

// An index, with a file beside it.
ACCEL_FUZZ_TARGET(model_index) {
  static const bool once = [] {
    const std::string header =
        R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    accel::fuzz::file_with("shard.safetensors", file + header + "xy");
    return true;
  }();
  (void)once;
  const auto path = accel::fuzz::file_with("index.json", input);
  const auto named = path.substr(0, path.size() - 10) +
      "model.safetensors.index.json";
  std::filesystem::rename(path, named);
  refused<Error>([&] {
    for (const auto& tensor :
         accel::launcher::read_model_files(named).tensors) {
      require(tensor.bytes == 2, "only what is in the file");
    }
  });
}
