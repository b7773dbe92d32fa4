// accel: the command. See docs/launching.md.

#include <fcntl.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "commands.h"
#include "error.h"
#include "flags.h"
#include "launch.h"
#include "launch_command.h"
#include "layout.h"
#include "suggestion.h"
#include "verify.h"

namespace {

using namespace accel::launcher;

constexpr const char* kHelp = R"(Usage: accel COMMAND [OPTIONS]

Commands:
  launch           start a program as several processes on this host
  config           write what launch does if not told otherwise
  env              print what a bug report needs
  test             see whether programs can run as several processes here
  estimate-memory  say how much memory a model's training needs
  merge-weights    make one file of a model that lies in several
  flags            print what a compiler needs to build a program that uses accel
  verify           say whether a migrated program computes what the original
                   computes

Options:
  -h, --help
  --version

Examples:
  accel launch --num-processes 2 -- ./train --epochs 3
  c++ -O2 $(accel flags --compile) train.cpp $(accel flags --link) -o train

accel COMMAND --help says more. The rewriter is a command of its own:
accel-migrate --help.
)";

/// Descriptors 0 to 2 must be taken before anything else is opened.
void open_standard_descriptors() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) {
      ::close(fd);
    }
    if (fd < 0 || fd > STDERR_FILENO) {
      return;
    }
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << kHelp;
    return kUsage;
  }
  const std::string& command = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (command == "launch") {
    const auto options = parse_launch(rest);
    return options ? launch(*options) : 0;
  }
  if (command == "flags") {
    return flags(rest);
  }
  if (command == "config") {
    return config_command(rest);
  }
  if (command == "env") {
    return env_command(rest);
  }
  if (command == "test") {
    return test_command(rest);
  }
  if (command == "estimate-memory") {
    return estimate_memory_command(rest);
  }
  if (command == "merge-weights") {
    return merge_weights_command(rest);
  }
  if (command == "verify") {
    return accel::verify::verify_command(rest);
  }
  if (command == "-h" || command == "--help" || command == "help") {
    std::cout << kHelp;
    return 0;
  }
  if (command == "--version" || command == "version") {
    std::cout << "accel " << kVersion << "\n";
    return 0;
  }
  throw Error(
      kUsage,
      (command[0] == '-' ? "unknown option " : "unknown command ") + command +
          suggest(
              command,
              {"launch",
               "config",
               "env",
               "test",
               "estimate-memory",
               "merge-weights",
               "flags",
               "verify",
               "help",
               "version",
               "--help",
               "--version"}) +
          "\nRun accel --help for the commands. A program is started with: "
          "accel launch -- PROGRAM");
}

} // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::cerr << "accel: " << error.what() << std::endl;
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "accel: internal error: " << error.what() << std::endl;
    return kLauncherFailed;
  }
}
