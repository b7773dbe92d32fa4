#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config_file.h"

namespace accel::launcher {

/// A value and who gave it, as it is shown to the user.
struct Choice {
  std::string value;
  /// "--num-processes", "environment OMP_NUM_THREADS", the path of a file.
  std::string source;
};

/// What a command can be told in several ways: by an option, which wins, by
/// the environment, or by a configuration file.
class Settings {
 public:
  /// `command` must outlive this.
  explicit Settings(CLI::App& command) : command_(command) {}

  struct Known {
    /// The option's names, as CLI11 wants them: "-n,--num-processes".
    std::string names;
    /// What the value is called in the help; empty for a flag, whose value is
    /// "true".
    std::string type;
    std::string help;
    /// Looks at a value; empty result where it is right.
    std::function<std::string(const std::string&)> check;
    /// In a configuration file, and in the environment; may be empty.
    std::string key;
    std::string variable;
  };

  /// Adds the option to the command.
  void add(const Known& known);

  /// The option called `name` ("--num-processes") as it was given, after the
  /// command has parsed. Throws `Error` (kUsage), naming the source, where a
  /// variable or a file has a value that the option would not take.
  std::optional<Choice> find(
      const std::string& name, const ConfigFile& config) const;

 private:
  struct Entry {
    Known known;
    CLI::Option* option;
    std::string value;
    bool flag = false;
  };

  CLI::App& command_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

/// Checks for `Settings::Known`.
std::function<std::string(const std::string&)> whole_number(
    long least, long most);
std::function<std::string(const std::string&)> real_number(
    double least, double most);
std::function<std::string(const std::string&)> one_of(
    std::vector<std::string> words);
std::function<std::string(const std::string&)> anything();

/// y/yes/t/true/on/1 and n/no/f/false/off/0, as Accelerate reads them; nothing
/// for anything else.
std::optional<bool> read_flag(const std::string& text);
/// What `read_flag` does not understand.
std::function<std::string(const std::string&)> yes_or_no();

} // namespace accel::launcher
