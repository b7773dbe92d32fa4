#include <unistd.h>

#include <filesystem>

#include "commands.h"
#include "error.h"
#include "installation.h"
#include "launch.h"
#include "launch_command.h"

namespace accel::launcher {

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
  return launch(*options);
}

} // namespace accel::launcher
