#include "golden_files.h"

#include <cstdlib>
#include <fstream>
#include <map>
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

} // namespace

const nlohmann::json& golden(const std::string& name) {
  static std::map<std::string, nlohmann::json> files;
  auto& file = files[name];
  if (file.is_null()) {
    const char* other = std::getenv("ACCEL_GOLDEN_DIR");
    file = read(
        (other ? std::string(other)
               : std::string(ACCEL_CONFORMANCE_DIR) + "/golden") +
        "/" + name);
  }
  return file;
}

const nlohmann::json& deviation(const std::string& id) {
  static const auto all =
      read(std::string(ACCEL_CONFORMANCE_DIR) + "/deviations.json");
  for (const auto& one : all) {
    if (one.at("id") == id) {
      return one;
    }
  }
  throw std::runtime_error("deviations.json has no entry " + id);
}

} // namespace accel::test
