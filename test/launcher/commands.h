#pragma once

// What the tests of commands share.

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "harness.h"

using Strings = std::vector<std::string>;

inline void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// In the folder, without the settings of who runs the tests.
inline Surroundings in(const Folder& folder) {
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  surroundings.environment = {
      {"XDG_CONFIG_HOME", folder.path()},
      {"OMP_NUM_THREADS", ""},
      {"ACCELERATE_MIXED_PRECISION", ""},
      {"CUDA_VISIBLE_DEVICES", ""}};
  return surroundings;
}

/// The line of a plan that begins with `what`, its columns with one space
/// between them.
inline std::string plan_line(const std::string& plan, const std::string& what) {
  for (const std::string& line : split_lines(plan)) {
    if (line.rfind(what + "  ", 0) == 0) {
      std::string result;
      for (char c : line) {
        if (c != ' ' || result.back() != ' ') {
          result += c;
        }
      }
      return result;
    }
  }
  return "no line " + what + " in:\n" + plan;
}
