#include "gpus.h"

#include <filesystem>
#include <fstream>

namespace accel::launcher {

std::string look_up(
    const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find(separator);
    if (end == std::string::npos || line.rfind(key, 0) != 0) {
      continue;
    }
    const size_t begin = line.find_first_not_of(" \t\"", end + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? ""
                                      : line.substr(begin, last - begin + 1);
  }
  return "";
}

std::vector<std::string> gpus() {
  namespace fs = std::filesystem;
  std::vector<std::string> result;
  std::error_code none;
  for (const auto& entry :
       fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    result.push_back(
        look_up((entry.path() / "information").string(), "Model", ':'));
  }
  return result;
}

} // namespace accel::launcher
