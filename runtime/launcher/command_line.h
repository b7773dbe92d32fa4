#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace accel::launcher {

/// Sets what `accel COMMAND --help` prints before and after the options, and
/// makes `accel COMMAND --help-table` print all of it as JSON.
void set_help(
    CLI::App& command, const std::string& usage, const std::string& footer);

/// A command's arguments, cut where the program's begin.
struct SplitArguments {
  /// Spelled with hyphens, as the command knows them.
  std::vector<std::string> options;
  /// The first argument that is neither an option nor an option's value, and
  /// everything behind it; or everything behind "--".
  std::vector<std::string> program;
};

/// Cuts `arguments` for `command`. Options may be spelled with underscores
/// for hyphens, as Accelerate and torchrun allow.
///
/// Throws `Error` (kUsage) at an option that `command` does not know, with
/// the nearest one that it knows.
SplitArguments split_arguments(
    const CLI::App& command, const std::vector<std::string>& arguments);

/// Parses all of `arguments`, options and files in any order. As
/// `parse_options` otherwise.
bool parse_arguments(
    CLI::App& command, const std::vector<std::string>& arguments);

/// Parses options that `split_arguments` has cut off. Throws `Error` (kUsage)
/// when they are wrong; returns false when they asked for help, which is
/// printed.
bool parse_options(CLI::App& command, std::vector<std::string> options);

} // namespace accel::launcher
