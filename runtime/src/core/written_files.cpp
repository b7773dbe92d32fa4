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
  int64_t times = 0; ///< How often it was opened.
  bool complete = false; ///< Since it was opened last, as process 0 says.

  std::string named(const std::string& path) const {
    return "file/" + path + "/" + std::to_string(times);
  }
};

std::mutex mutex;

std::map<std::string, File>& files() {
  // Never destroyed, nor what follows: a program's static object may write a file in
  // its destructor, a journal.
  static auto* all = new std::map<std::string, File>;
  return *all;
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

/// Whether this thread has opened something in that folder.
bool opened_below(const std::string& folder) {
  const std::string begin = folder + "/";
  for (auto it = files().lower_bound(begin);
       it != files().end() && it->first.compare(0, begin.size(), begin) == 0; ++it) {
    if (it->second.opened && it->second.thread == std::this_thread::get_id()) {
      return true;
    }
  }
  return false;
}

/// Whether this thread has listed a folder that the file is in since all waited for
/// that.
bool listed_above(const std::string& name) {
  bool found = false;
  for (auto end = name.rfind('/'); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1)) {
    const auto folder = files().find(name.substr(0, end));
    if (folder != files().end() && folder->second.read &&
        folder->second.thread == std::this_thread::get_id()) {
      folder->second.read = false;
      found = true;
    }
  }
  return found;
}

} // namespace

WrittenFiles& WrittenFiles::get() {
  static auto* instance = new WrittenFiles;
  return *instance;
}

bool WrittenFiles::opened(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto name = name_of(path);
  const bool listed = listed_above(name);
  File& file = files()[name];
  const bool waits = file.read && file.thread == std::this_thread::get_id();
  TORCH_CHECK(
      !file.read || waits || !file.opened,
      "accel: '",
      path,
      "' is opened for writing on another thread than before, while other processes may still be reading it. Write and read it on the thread that trains.");
  file = {std::this_thread::get_id(), true, false, file.times + 1, false};
  return waits || listed;
}

WrittenFiles::Wait WrittenFiles::read(const std::string& path, std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto file_name = name_of(path);
  const auto [found, is_new] = files().try_emplace(file_name);
  File& file = found->second;
  if (is_new) {
    file.thread = std::this_thread::get_id();
  }
  file.read = true;
  if (file.opened && file.thread != std::this_thread::get_id()) {
    name = file.named(path);
    return file.complete ? Wait::kForNobody : Wait::kForFirst;
  }
  return file.opened || opened_below(file_name) ? Wait::kForEveryone
                                                : Wait::kForNobody;
}

void WrittenFiles::completed(const std::string& path, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  File& file = files()[name_of(path)];
  file.complete = file.complete || file.named(path) == name;
}

} // namespace accel::detail
