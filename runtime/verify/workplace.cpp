#include "workplace.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace accel::verify {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kCopyLimit = std::uintmax_t{16} << 20;
constexpr size_t kMostFiles = 20000;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{2} << 30;
constexpr int kLevelsAbove = 6;
constexpr std::ptrdiff_t kMostNeighbours = 500;

} // namespace

Workplace::State Workplace::state_of(const fs::path& path) {
  std::error_code none;
  return {fs::file_size(path, none), fs::last_write_time(path, none)};
}

fs::path Workplace::make_surroundings(
    const fs::path& source, const fs::path& place) {
  fs::path top = source;
  for (int level = 0; level < kLevelsAbove; ++level) {
    std::error_code failed;
    const fs::directory_iterator entries(top.parent_path(), failed);
    // Not the file system's root, and no folder like /tmp.
    if (failed || top.parent_path() == top.root_path() ||
        std::distance(entries, fs::directory_iterator()) > kMostNeighbours) {
      break;
    }
    top = top.parent_path();
  }
  fs::create_directories(place);
  fs::path copy = place;
  for (const auto& name : source.lexically_relative(top)) {
    if (name == ".") {
      break;
    }
    for (const auto& entry : fs::directory_iterator(top)) {
      if (entry.path().filename() != name) {
        fs::create_symlink(entry.path(), copy / entry.path().filename());
      }
    }
    top /= name;
    copy /= name;
    fs::create_directory(copy);
  }
  return copy;
}

Workplace::Workplace(const fs::path& source, const fs::path& place)
    : directory_(make_surroundings(fs::canonical(source), place)) {
  mirror(
      fs::canonical(source),
      directory_,
      fs::canonical(place.parent_path().parent_path()));
}

void Workplace::mirror(
    const fs::path& source, const fs::path& target, const fs::path& except) {
  for (const auto& entry : fs::directory_iterator(source)) {
    try {
      mirror_entry(entry, target / entry.path().filename(), except);
    } catch (const fs::filesystem_error&) {
      // Somebody else's file, taken away meanwhile, is none of the program's.
      if (fs::exists(fs::symlink_status(entry.path()))) {
        throw;
      }
    }
  }
}

void Workplace::mirror_entry(
    const fs::directory_entry& entry,
    const fs::path& copy,
    const fs::path& except) {
  std::error_code none;
  if (entry.is_directory(none)) {
    if (copy.filename().string()[0] == '.' ||
        fs::canonical(entry.path(), none) == except) {
      return;
    }
    if (entry.is_symlink()) {
      fs::create_directory_symlink(fs::canonical(entry.path()), copy);
      return;
    }
    fs::create_directory(copy);
    mirror(entry.path(), copy, except);
    return;
  }
  if (!entry.is_regular_file(none)) {
    return;
  }
  if (initial_.size() >= kMostFiles) {
    throw std::runtime_error(
        "the working directory holds more than " + std::to_string(kMostFiles) +
        " files, and each run gets a copy of it. Go to a folder with only "
        "what the program reads, and start accel verify there");
  }
  const fs::path file = fs::canonical(entry.path());
  if (entry.file_size(none) <= kCopyLimit) {
    copied_ += entry.file_size(none);
    if (copied_ > kMostBytes) {
      throw std::runtime_error(
          "the working directory holds more than 2 GB in files of up to 16 "
          "MB, and each run gets a copy of them. Go to a folder with only "
          "what the program reads, and start accel verify there");
    }
    fs::copy_file(file, copy);
  } else {
    fs::create_symlink(file, copy);
    linked_[file.string()] = state_of(file);
  }
  initial_[fs::relative(copy, directory_).string()] = state_of(copy);
}

std::vector<std::string> Workplace::written() const {
  std::vector<std::string> result;
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    std::error_code none;
    if (entry.is_directory(none) || !entry.is_regular_file(none)) {
      continue;
    }
    const std::string name = fs::relative(entry.path(), directory_).string();
    const auto before = initial_.find(name);
    if (before == initial_.end() ||
        !(before->second == state_of(entry.path()))) {
      result.push_back(name);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::string> Workplace::damaged() const {
  std::vector<std::string> result;
  for (const auto& [path, state] : linked_) {
    if (!(state == state_of(path))) {
      result.push_back(path);
    }
  }
  return result;
}

} // namespace accel::verify
