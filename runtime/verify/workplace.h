#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace accel::verify {

/// A working directory of its own for one run: it begins with what the user's
/// working directory holds, so that programs find their data, and what a run
/// writes stays in it.
///
/// Files of up to 16 MB are copied; larger ones are linked to, and a run that
/// writes into one of these is noticed. Folders whose name begins with a dot
/// are left out.
///
/// Programs also read ../data: up to six folders above it are there as well,
/// with links to all that is in them. What a run makes in one of these is its
/// own; what it writes into something that is there already, is not.
class Workplace {
 public:
  /// Makes it somewhere in `place`. Throws std::runtime_error where `source`
  /// has too much to copy.
  Workplace(
      const std::filesystem::path& source,
      const std::filesystem::path& place);

  const std::filesystem::path& directory() const {
    return directory_;
  }

  /// What a run has written or changed, relative to the directory; sorted.
  std::vector<std::string> written() const;

  /// The user's own large files that a run has written into.
  std::vector<std::string> damaged() const;

 private:
  struct State {
    std::uintmax_t size;
    std::filesystem::file_time_type time;
    bool operator==(const State& other) const {
      return size == other.size && time == other.time;
    }
  };
  static State state_of(const std::filesystem::path& path);
  static std::filesystem::path make_surroundings(
      const std::filesystem::path& source,
      const std::filesystem::path& place);
  void mirror(
      const std::filesystem::path& source,
      const std::filesystem::path& target,
      const std::filesystem::path& except);
  void mirror_entry(
      const std::filesystem::directory_entry& entry,
      const std::filesystem::path& copy,
      const std::filesystem::path& except);

  std::filesystem::path directory_;
  std::map<std::string, State> initial_;
  std::map<std::string, State> linked_;
  std::uintmax_t copied_ = 0;
};

} // namespace accel::verify
