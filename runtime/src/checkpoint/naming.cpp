#include <accel/checkpoint/directory.h>

#include "checkpoint/directory_lock.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/together.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

constexpr const char* kPrefix = "checkpoint_";

/// The number in "checkpoint_12", -1 where the name is another.
int64_t number_of(const std::string& name) {
  const std::string prefix = kPrefix;
  const std::string digits = name.substr(std::min(name.size(), prefix.size()));
  if (name.compare(0, prefix.size(), prefix) != 0 || digits.empty() ||
      digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return -1;
  }
  return std::stoll(digits);
}

/// Whether `name` is what a save of "checkpoint_12" or its removal leaves.
bool is_leftover(const std::string& name) {
  const std::string suffix = ".incomplete";
  return name.size() > suffix.size() + 1 && name[0] == '.' &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) ==
             0 &&
         number_of(name.substr(1, name.size() - suffix.size() - 1)) >= 0;
}

using Numbered = std::pair<int64_t, std::string>;

/// Everything called checkpoint_{i}, by number.
std::vector<Numbered> numbered_entries(const std::string& root) {
  std::vector<Numbered> result;
  if (!fs::is_directory(root)) {
    return result;
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    const int64_t number = number_of(entry.path().filename().string());
    if (number >= 0) {
      result.emplace_back(number, entry.path().string());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool is_complete(const std::string& directory, Verify verify) {
  try {
    verify_checkpoint(directory, verify);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

} // namespace

std::string checkpoint_path(const std::string& root, int64_t index) {
  return (fs::path(root) / (kPrefix + std::to_string(index))).string();
}

int64_t next_checkpoint_index(const std::string& root) {
  const auto entries = numbered_entries(root);
  return entries.empty() ? 0 : entries.back().first + 1;
}

std::optional<std::string> newest_checkpoint(
    const std::string& root, Verify verify, int64_t at_most) {
  auto entries = numbered_entries(root);
  std::reverse(entries.begin(), entries.end());
  for (const auto& [number, path] : entries) {
    if (number <= at_most && is_complete(path, verify)) {
      return path;
    }
  }
  return std::nullopt;
}

std::optional<std::string> newest_checkpoint_of_all(
    const std::string& root, const Processes& processes, Verify verify) {
  const auto number_in = [](const std::string& path) {
    return number_of(fs::path(path).filename().string());
  };
  std::optional<std::string> newest;
  for (int64_t at_most = INT64_MAX;;) {
    const auto numbers =
        gather_results(processes, "Looking for the newest checkpoint", [&] {
          newest = processes.writer() ? newest_checkpoint(root, verify, at_most)
                                      : std::nullopt;
          return !processes.writer() ? ""
              : std::to_string(newest ? number_in(*newest) : -1);
        });
    int64_t least = INT64_MAX;
    int64_t most = -1;
    for (const auto& number : numbers) {
      if (!number.empty()) {
        least = std::min<int64_t>(least, std::stoll(number));
        most = std::max<int64_t>(most, std::stoll(number));
      }
    }
    if (least < 0) {
      return std::nullopt;
    }
    if (least == most) {
      return checkpoint_path(root, least);
    }
    at_most = least;
  }
}

std::vector<std::string> prune_checkpoints(
    const std::string& root,
    int64_t total_limit,
    const Remove& remove) {
  TORCH_CHECK(
      total_limit >= 1,
      "At least one checkpoint has to be kept; the limit is ",
      total_limit);
  std::vector<std::string> complete;
  for (const auto& [number, path] : numbered_entries(root)) {
    if (is_complete(path, Verify::kSizes)) {
      complete.push_back(path);
    }
  }
  std::vector<std::string> removed;
  while (static_cast<int64_t>(complete.size()) > total_limit) {
    const std::string path = complete.front();
    complete.erase(complete.begin());
    // First the name, so that what is half removed is not taken for a
    // checkpoint; the rest follows below.
    const std::string leftover = temporary_path(path);
    fs::remove_all(leftover);
    rename_path(path, leftover);
    removed.push_back(path);
  }
  if (!removed.empty()) {
    sync_directory(root);
  }
  std::vector<std::string> leftovers;
  if (fs::is_directory(root)) {
    for (const auto& entry : fs::directory_iterator(root)) {
      if (is_leftover(entry.path().filename().string()) &&
          !is_in_use(entry.path().string())) {
        leftovers.push_back(entry.path().string());
      }
    }
  }
  for (const auto& path : leftovers) {
    remove(path);
  }
  return removed;
}

} // namespace accel::checkpoint
