#include "memory_kills.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace accel::launcher {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    parts.push_back(part);
  }
  return parts;
}

bool has(const std::vector<std::string>& parts, const std::string& part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

/// The number behind `name` in a file of lines "name number".
std::optional<int64_t> counter(
    const std::string& file, const std::string& name) {
  std::ifstream stream(file);
  int64_t number = 0;
  for (std::string word; stream >> word >> number;) {
    if (word == name) {
      return number;
    }
  }
  return std::nullopt;
}

/// The memory controller's version (0: there is none), and our path in its
/// hierarchy.
std::pair<int, std::string> own_group(const std::string& root) {
  std::pair<int, std::string> result{0, ""};
  std::ifstream file(root + "/proc/self/cgroup");
  // "4:memory:/user/x", or "0::/user.slice/x".
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string path = line.substr(second + 1);
    if (has(split(line.substr(first + 1, second - first - 1), ','), "memory")) {
      return {1, path};
    }
    if (first + 1 == second) {
      result = {2, path};
    }
  }
  return result;
}

/// Where the hierarchy is mounted, and which cgroup stands there.
std::pair<std::string, std::string> mount_of(
    const std::string& root, int version) {
  std::ifstream file(root + "/proc/self/mountinfo");
  // 31 24 0:27 /group /sys/fs/cgroup/memory rw … - cgroup cgroup rw,memory
  for (std::string line; std::getline(file, line);) {
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) {
      continue;
    }
    const bool wanted = version == 2 ? dash[1] == "cgroup2"
                                     : dash[1] == "cgroup" &&
                                           has(split(dash[3], ','), "memory");
    if (wanted) {
      return {root + words[4], words[3]};
    }
  }
  return {"", ""};
}

std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

} // namespace

MemoryKills::MemoryKills(std::string root) : root_(std::move(root)) {
  const auto [version, path] = own_group(root_);
  const auto [folder, mounted] = mount_of(root_, version);
  if (version != 0 && !folder.empty()) {
    top_ = folder;
    // In a container the mount begins at its own cgroup.
    std::string below = path;
    if (mounted != "/" && path.rfind(mounted, 0) == 0) {
      below = path.substr(mounted.size());
    }
    group_ = folder + (below == "/" ? "" : below);
    if (::access(group_.c_str(), F_OK) != 0) {
      group_ = folder;
    }
  }
  group_known_ = group_kills();
  machine_known_ = machine_kills();
}

int64_t MemoryKills::group_kills() const {
  if (group_.empty()) {
    return 0;
  }
  for (const char* name : {"/memory.events", "/memory.oom_control"}) {
    if (const auto kills = counter(group_ + name, "oom_kill")) {
      return *kills;
    }
  }
  return 0;
}

int64_t MemoryKills::machine_kills() const {
  return counter(root_ + "/proc/vmstat", "oom_kill").value_or(0);
}

std::string MemoryKills::limit() const {
  // The least of those that hold for us; no limit is "max", or in version 1 a
  // number that no machine has.
  constexpr double kNoLimit = 1e18;
  double least = kNoLimit;
  for (std::string folder = group_; folder.size() >= top_.size();
       folder = parent(folder)) {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      std::ifstream file(folder + name);
      double bytes = 0;
      if (file >> bytes) {
        least = std::min(least, bytes);
      }
    }
  }
  if (least == kNoLimit) {
    return "";
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.0f MiB", least / (1 << 20));
  return text;
}

std::string MemoryKills::explain() {
  // Each kill of a group is one of the machine, too.
  if (group_kills() > group_known_) {
    ++group_known_;
    ++machine_known_;
    const std::string most = limit();
    return "The kernel has killed a process of this job's cgroup, since memory "
           "ran out" +
           (most.empty() ? "." : ": together they may use " + most + ".");
  }
  if (machine_kills() > machine_known_) {
    ++machine_known_;
    return "The kernel has killed a process on this machine at that time, "
           "since memory ran out (see dmesg).";
  }
  return "";
}

} // namespace accel::launcher
