#pragma once

#include <map>
#include <string>

namespace accel::launcher {

/// What somebody answered, as a configuration file has it.
struct Answers {
  std::map<std::string, std::string> values;
  /// Lists of keys: "fsdp_config" and the like.
  std::map<std::string, std::map<std::string, std::string>> lists;
};

/// Asks on standard output how programs should be launched, and again where an answer
/// on standard input makes no sense. Throws `Error` (kUsage) where the answers end.
Answers ask_everything();

} // namespace accel::launcher
