#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Fuzzing of everything that reads a text or a file which may come from
/// anywhere. An executable has several targets; libFuzzer runs the one that the
/// environment variable ACCEL_FUZZ_TARGET names, and `replay` all of them over
/// the stored inputs (corpus/TARGET/*).
///
///     ACCEL_FUZZ_TARGET(header) {
///       parse(std::string(input));   // errors that are thrown are answers
///     }
///
/// A target throws nothing: what the code under test throws for bad input is
/// caught by `refused`. What must hold is checked with `require`, which aborts.
namespace accel::fuzz {

using Target = void (*)(std::string_view input);

/// By name.
inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

inline bool add_target(const char* name, Target target) {
  return targets().emplace(name, target).second;
}

/// Aborts, so that libFuzzer keeps the input, where `condition` is false.
void require(bool condition, const char* what);

/// Prints why an input was refused where ACCEL_FUZZ_VERBOSE is set.
void note(const char* message);

/// Runs `read`; true where it has thrown an `Error`. Anything else that is
/// thrown ends the process.
template <typename Error, typename Read>
bool refused(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    note(error.what());
    return true;
  }
  return false;
}

/// A directory of this process in memory.
const std::filesystem::path& scratch();

/// Writes `bytes` as scratch()/`name` and returns its path.
std::string file_with(const std::string& name, std::string_view bytes);

/// The pieces of `input` between zero bytes; at least `count` of them.
std::vector<std::string> pieces(std::string_view input, size_t count);

} // namespace accel::fuzz

#define ACCEL_FUZZ_TARGET(name)                                        \
  static void fuzz_##name(std::string_view input);                     \
  [[maybe_unused]] static const bool name##_is_known =                 \
      ::accel::fuzz::add_target(#name, &fuzz_##name);                  \
  static void fuzz_##name([[maybe_unused]] std::string_view input)
