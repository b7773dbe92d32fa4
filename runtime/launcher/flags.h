#pragma once

#include <string>
#include <vector>

namespace accel::launcher {

/// What a compiler needs to build a program that uses accel.
struct BuildFlags {
  /// -std, and where the headers of accel and LibTorch are.
  std::vector<std::string> compile;
  /// The libraries, and run paths to them.
  std::vector<std::string> link;
  /// The folder of LibTorch that holds include/ and lib/.
  std::string torch_dir;
  /// The oldest C++ standard that its headers accept: "17" or "20".
  std::string cxx_standard;
};

/// The flags for the accel that `executable` (an absolute path without links)
/// belongs to: a build tree or an install tree.
///
/// LibTorch is the one that the library was built against; `libtorch`, where
/// it is not empty, names the same version at another place. Throws `Error`
/// (kLauncherFailed) when something is not where it should be, or the
/// version differs.
BuildFlags find_build_flags(
    const std::string& executable, const std::string& libtorch);

/// The folder of LibTorch that `find_build_flags` would use. Throws likewise,
/// but does not look at its version.
std::string find_torch_folder(const std::string& libtorch);

/// Runs `accel flags`. Returns the exit code, or throws `Error`.
int flags(const std::vector<std::string>& arguments);

} // namespace accel::launcher
