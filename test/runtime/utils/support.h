#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <unistd.h>

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

/// A file of golden vectors: ours, or those in $ACCEL_GOLDEN_DIR.
inline nlohmann::json golden(const std::string& name) {
  const char* dir = std::getenv("ACCEL_GOLDEN_DIR");
  return nlohmann::json::parse(read_file(
      std::filesystem::path(dir ? dir : ACCEL_GOLDEN_DIR_DEFAULT) / name));
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
