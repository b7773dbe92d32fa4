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

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
};

int launch_command(const std::vector<std::string>& arguments) {
  const auto options = parse_launch(arguments);
  return options ? launch(*options) : 0;
}

constexpr Command kCommands[] = {
    {"launch",
     "start a program as several processes on this host",
     launch_command},
    {"config", "write what launch does if not told otherwise", config_command},
    {"env", "print what a bug report needs", env_command},
    {"test",
     "see whether programs can run as several processes here",
     test_command},
    {"estimate-memory",
     "say how much memory a model's training needs",
     estimate_memory_command},
    {"merge-weights",
     "make one file of a model that lies in several",
     merge_weights_command},
    {"flags",
     "print what a compiler needs to build a program that uses accel",
     flags},
    {"verify",
     "say whether a migrated program computes what the original computes",
     accel::verify::verify_command},
};

constexpr const char* kHelpFooter = R"(
Options:
  -h, --help
  --version

Examples:
  accel launch --num-processes 2 -- ./train --epochs 3
  c++ -O2 $(accel flags --compile) train.cpp $(accel flags --link) -o train

accel COMMAND --help says more. The rewriter is a command of its own:
accel-migrate --help.
)";

std::string help() {
  std::string text = "Usage: accel COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string name = command.name;
    name.resize(15, ' ');
    text += "  " + name + "  " + command.summary + "\n";
  }
  return text + kHelpFooter;
}

/// The names and summaries of the commands, for what makes the man pages and
/// completions; accel COMMAND --help-table has the options.
void print_command_table() {
  const char* separator = "[";
  for (const Command& command : kCommands) {
    std::cout << separator << "[\"" << command.name << "\", \""
              << command.summary << "\"]";
    separator = ",\n ";
  }
  std::cout << "]\n";
}

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
    std::cerr << help();
    return kUsage;
  }
  const std::string& command = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  for (const Command& known : kCommands) {
    if (command == known.name) {
      return known.run(rest);
    }
  }
  if (command == "--help-table") {
    print_command_table();
    return 0;
  }
  if (command == "-h" || command == "--help" || command == "help") {
    std::cout << help();
    return 0;
  }
  if (command == "--version" || command == "version") {
    std::cout << "accel " << kVersion << "\n";
    return 0;
  }
  std::vector<std::string> words{"help", "version", "--help", "--version"};
  for (const Command& known : kCommands) {
    words.push_back(known.name);
  }
  throw Error(
      kUsage,
      (command[0] == '-' ? "unknown option " : "unknown command ") + command +
          suggest(command, words) +
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
