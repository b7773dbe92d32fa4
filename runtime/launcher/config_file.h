#pragma once

#include <map>
#include <optional>
#include <string>

namespace accel::launcher {

/// What a configuration file says: a key's value as text, where there is one.
struct ConfigFile {
  std::string path;
  std::map<std::string, std::string> values;

  std::optional<std::string> find(const std::string& key) const;
};

/// Where `accel config` writes and `accel launch` looks, if not told:
/// $ACCEL_CONFIG_FILE, else $XDG_CONFIG_HOME/accel/default_config.yaml, else
/// the same under ~/.config. Empty where none of the three is set.
std::string default_config_path();

/// Reads a YAML (or JSON) file in Accelerate's format, with keys of our own.
///
/// Throws `Error` (kUsage) for a key that is not known, with the nearest one,
/// for one that asks for what accel does not have, and for values that
/// contradict each other; (kLauncherFailed) where the file cannot be read.
ConfigFile read_config(const std::string& path);

/// The text of a file with these keys, and lists of keys, which `read_config` reads.
std::string config_text(
    const std::map<std::string, std::string>& values,
    const std::map<std::string, std::map<std::string, std::string>>& lists = {});

/// Writes `text` as `path`, whole or not at all; makes the folders above it.
/// Throws `Error` (kLauncherFailed).
void write_file(const std::string& path, const std::string& text);

} // namespace accel::launcher
