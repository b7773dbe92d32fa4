#include "installation.h"

#include "error.h"
#include "layout.h"

namespace accel::launcher {

namespace fs = std::filesystem;

fs::path own_executable() {
  std::error_code failed;
  fs::path path = fs::read_symlink("/proc/self/exe", failed);
  if (failed) {
    throw Error(
        kLauncherFailed,
        "where accel lies cannot be found out: /proc/self/exe: " +
            failed.message());
  }
  return path;
}

bool in_build_tree(const fs::path& executable) {
  // The build folder may have been named by a path with symbolic links.
  std::error_code none;
  return fs::equivalent(executable.parent_path(), kBuildBinDir, none);
}

fs::path library_folder(const fs::path& executable) {
  return in_build_tree(executable)
             ? fs::path(kBuildLibDir)
             : (executable.parent_path() / kInstalledLibDir).lexically_normal();
}

std::string missing(
    const fs::path& executable,
    const fs::path& part,
    const std::string& target) {
  return part.string() + " is missing. " +
         (in_build_tree(executable)
              ? std::string("Build it: cmake --build ") + kBuildDir +
                    " --target " + target
              : "It is built and installed with the runtime "
                "(-DACCEL_BUILD_RUNTIME=ON). An accel that was copied from its "
                "folder does not find it; make a symbolic link instead");
}

} // namespace accel::launcher
