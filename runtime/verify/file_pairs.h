#pragma once

#include <string>
#include <vector>

namespace accel::verify {

/// What one file is called in the folders of three runs; empty where a run has
/// not written it.
struct FilePair {
  std::string original;
  /// In that of the original's second run.
  std::string repeat;
  std::string migrated;
};

/// Finds out which files belong together: those of one name, and then those
/// whose names change from one run of the original to the next and are alike
/// but for their numbers, which is what a clock makes of a name. These are taken
/// in the order of these numbers. The lists are sorted; the result is in the order
/// of the names.
std::vector<FilePair> pair_files(
    const std::vector<std::string>& original,
    const std::vector<std::string>& repeat,
    const std::vector<std::string>& migrated);

} // namespace accel::verify
