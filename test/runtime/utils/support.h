#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "build_paths.h"

/// Passes when `statement` throws an exception whose text contains `text`.
#define EXPECT_THROWS_WITH(statement, text)                              \
  do {                                                                   \
    try {                                                                \
      statement;                                                         \
      ADD_FAILURE() << "no exception from " #statement;                  \
    } catch (const std::exception& error) {                              \
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) \
          << error.what();                                               \
    }                                                                    \
  } while (false)

namespace test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

/// The folder of golden vectors: ours, or $ACCEL_GOLDEN_DIR.
inline std::filesystem::path golden_folder() {
  const char* other = std::getenv("ACCEL_GOLDEN_DIR");
  return other ? std::filesystem::path(other)
               : std::filesystem::path(build_paths::kConformance) / "golden";
}

/// A file of golden vectors.
inline nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(read_file(golden_folder() / name));
}

/// The files of golden vectors with a number between `stem` and `rest`: one for
/// each number of processes that was recorded.
inline std::vector<std::string> golden_files(
    const std::string& stem, const std::string& rest) {
  const std::regex pattern(stem + "[0-9]+" + rest);
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(golden_folder())) {
    const auto name = entry.path().filename().string();
    if (std::regex_match(name, pattern)) {
      names.push_back(name);
    }
  }
  EXPECT_FALSE(names.empty()) << stem << "N" << rest;
  return names;
}

/// The records under `key` in all of them.
inline nlohmann::json golden_of_all(
    const std::string& stem, const std::string& rest, const std::string& key) {
  auto all = nlohmann::json::array();
  for (const auto& name : golden_files(stem, rest)) {
    const auto file = golden(name);
    for (const auto& record : file.at(key)) {
      all.push_back(record);
    }
  }
  return all;
}

/// A fresh folder that is removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "accel-test.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("mkdtemp failed for " + name);
    }
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::filesystem::remove_all(path_);
  }
  const std::filesystem::path& path() const {
    return path_;
  }

 private:
  std::filesystem::path path_;
};

} // namespace test
