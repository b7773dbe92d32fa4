#include "build_paths.h"
#include "golden_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <stdexcept>

namespace accel::test {
namespace {

nlohmann::json read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("cannot read " + path);
  }
  return nlohmann::json::parse(file);
}

std::filesystem::path folder() {
  const char* other = std::getenv("ACCEL_GOLDEN_DIR");
  return other != nullptr
      ? std::filesystem::path(other)
      : std::filesystem::path(build_paths::kConformance) / "golden";
}

} // namespace

const nlohmann::json& golden(const std::string& name) {
  static std::map<std::string, nlohmann::json> files;
  auto& file = files[name];
  if (file.is_null()) {
    file = read((folder() / name).string());
  }
  return file;
}

std::vector<std::string> golden_files(
    const std::string& stem,
    const std::string& rest) {
  const std::regex pattern(stem + "[0-9]+" + rest);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const auto name = entry.path().filename().string();
    if (std::regex_match(name, pattern)) {
      names.push_back(name);
    }
  }
  if (names.empty()) {
    throw std::runtime_error(
        "no " + stem + "N" + rest + " in " + folder().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool own_golden_files() {
  return std::getenv("ACCEL_GOLDEN_DIR") == nullptr;
}

const nlohmann::json& deviation(const std::string& id) {
  static const auto all =
      read(std::string(build_paths::kConformance) + "/deviations.json");
  for (const auto& one : all) {
    if (one.at("id") == id) {
      return one;
    }
  }
  throw std::runtime_error("deviations.json has no entry " + id);
}

} // namespace accel::test
