#include "written_files.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace accel::detail {
namespace {

struct File {
  std::thread::id thread; ///< That opened it; or that asked for it first.
  bool opened = false; ///< For writing, by this program.
  bool read = false; ///< Since it was opened last, or before.
};

std::mutex mutex;

std::map<std::string, File>& files() {
  static std::map<std::string, File> all;
  return all;
}

/// One name for each file, however the program spells it, and whether it is there or
/// not: a process may ask before another one has made it.
std::string name_of(const std::string& path) {
  std::error_code error;
  const auto whole =
      std::filesystem::absolute(path, error).lexically_normal();
  if (error) {
    return path;
  }
  const auto folder =
      std::filesystem::weakly_canonical(whole.parent_path(), error);
  return error ? whole.string() : (folder / whole.filename()).string();
}

} // namespace

WrittenFiles& WrittenFiles::get() {
  static WrittenFiles instance;
  return instance;
}

bool WrittenFiles::opened(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  File& file = files()[name_of(path)];
  const bool waits = file.read && file.thread == std::this_thread::get_id();
  TORCH_CHECK(
      !file.read || waits || !file.opened,
      "accel: '",
      path,
      "' is opened for writing on another thread than before, while other processes may still be reading it. Write and read it on the thread that trains.");
  file = {std::this_thread::get_id(), true, false};
  return waits;
}

bool WrittenFiles::read(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, is_new] = files().try_emplace(name_of(path));
  File& file = found->second;
  if (is_new) {
    file.thread = std::this_thread::get_id();
  }
  TORCH_CHECK(
      !file.opened || file.thread == std::this_thread::get_id(),
      "accel: '",
      path,
      "' is read on another thread than the one that opened it for writing, where the processes cannot wait for each other: it may not be complete. Read it on the thread that trains, behind accelerator.wait_for_everyone().");
  file.read = true;
  return file.opened;
}

} // namespace accel::detail
