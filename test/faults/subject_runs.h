#pragma once

// Runs of the program faults_subject, alone or under the launcher.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "build_paths.h"
#include "harness.h"

using Strings = std::vector<std::string>;

inline Surroundings in(const Folder& folder) {
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  surroundings.environment = {
      {"OMP_NUM_THREADS", "1"},
      {"ACCEL_RESUME", ""},
      {"ACCEL_STALL_TIMEOUT", "2"}};
  return surroundings;
}

inline Strings launch(const Strings& options, const Strings& arguments) {
  Strings all{"launch", "-n", "2"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"--", build_paths::kFaultsSubject});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

inline Strings command(Strings arguments) {
  arguments.insert(arguments.begin(), accel_path());
  return arguments;
}

/// A shell that does `before` and becomes the program.
inline Strings in_shell(const std::string& before, const Strings& words) {
  std::string script = before + " exec";
  for (const std::string& word : words) {
    script += " '" + word + "'";
  }
  return {"/bin/sh", "-c", script};
}

/// What the job prints that nothing happens to.
inline const std::string& undisturbed() {
  static const std::string output = [] {
    const Folder folder;
    const Result result =
        accel(launch({"--output", "main"}, {"train"}), in(folder));
    EXPECT_EQ(result.status, 0) << result.err;
    expect_part(result.out, "after 300 steps: 0x");
    return result.out;
  }();
  return output;
}

inline size_t lines_in(const Folder& folder, const std::string& name) {
  return folder.has(name) ? split_lines(folder.read(name)).size() : 0;
}

/// Where somebody listens at `port`, as /proc/net/tcp and tcp6 have it.
inline Strings listeners(int port) {
  Strings result;
  char wanted[8];
  std::snprintf(wanted, sizeof wanted, ":%04X", port);
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const size_t colon = local.find(':');
      if (state == "0A" && colon != std::string::npos &&
          local.substr(colon) == wanted) {
        result.push_back(local.substr(0, colon));
      }
    }
  }
  return result;
}
