#pragma once

#include <filesystem>
#include <string>

namespace accel::launcher {

/// The file of this process, without symbolic links: however accel was called
/// (from $PATH, by a relative path, through a link), its other parts are found
/// from here. Throws `Error` (kLauncherFailed) where there is no /proc.
std::filesystem::path own_executable();

/// Whether `executable` is the one that lies in the build tree.
bool in_build_tree(const std::filesystem::path& executable);

/// The folder with the libraries that belong to `executable`.
std::filesystem::path library_folder(const std::filesystem::path& executable);

/// What to do where `part`, which belongs to `executable`, is missing; `target`
/// builds it.
std::string missing(
    const std::filesystem::path& executable,
    const std::filesystem::path& part,
    const std::string& target);

} // namespace accel::launcher
