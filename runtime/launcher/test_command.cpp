#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "commands.h"
#include "error.h"
#include "flags.h"
#include "installation.h"
#include "launch.h"
#include "launch_command.h"

namespace accel::launcher {
namespace {

/// The self-test of a package was linked on another machine, and so carries no
/// run path to LibTorch.
void find_libtorch_at_run_time() {
  const char* named = std::getenv("ACCEL_LIBTORCH");
  if (!named || !*named) {
    return;
  }
  std::string path = find_torch_folder(named) + "/lib";
  if (const char* before = std::getenv("LD_LIBRARY_PATH"); before && *before) {
    path += std::string(":") + before;
  }
  ::setenv("LD_LIBRARY_PATH", path.c_str(), /*overwrite=*/1);
}

} // namespace

int test_command(const std::vector<std::string>& arguments) {
  const std::filesystem::path program =
      own_executable().parent_path() / "accel-self-test";
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--", program.string()});
  auto options = parse_launch(all, "test");
  if (!options) {
    return 0;
  }
  if (options->program.size() != 1) {
    throw Error(
        kUsage,
        "test takes options of accel launch only, but got " +
            options->program.front());
  }
  if (::access(program.c_str(), X_OK) != 0) {
    throw Error(
        kLauncherFailed,
        missing(own_executable(), program, "accel_self_test"));
  }
  find_libtorch_at_run_time();
  return launch(*options);
}

} // namespace accel::launcher
