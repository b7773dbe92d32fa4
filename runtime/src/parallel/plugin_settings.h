#pragma once

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

/// One of Accelerate's settings of an engine that accel does the work of: a key in a
/// list of the configuration file, a variable, and an option of `accel launch`.
struct PluginSetting {
  /// "zero_stage".
  const char* name;
  /// ACCELERATE_DEEPSPEED_ZERO_STAGE; empty where only the launcher reads it.
  const char* variable;
  const char* option;
  /// What the option's value is called in the help.
  const char* type;
  const char* help;
  /// Why a value cannot be honoured; empty where it can.
  std::string (*check)(const std::string& value);
  /// A JSON pointer into the engine's own file; null where that does not say it.
  const char* in_file = nullptr;
};

/// The one of that name; null where there is none.
inline const PluginSetting* find_setting(
    const std::vector<PluginSetting>& settings, const std::string& name) {
  const auto found = std::find_if(
      settings.begin(), settings.end(),
      [&](const PluginSetting& one) { return name == one.name; });
  return found != settings.end() ? &*found : nullptr;
}

inline std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

/// Of a flag that its check has accepted.
inline bool is_true(const std::string& value) {
  const auto word = in_lower_case(value);
  return word == "true" || word == "1" || word == "yes";
}

/// A number or a flag as it would be given in the environment.
template <typename T>
std::string text_of_value(const T& value) {
  std::ostringstream text;
  text.precision(17);
  text << std::boolalpha << value;
  return text.str();
}

} // namespace accel::parallel
