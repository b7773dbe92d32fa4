#pragma once

#include "multiprocess.h"

#include <c10/util/Exception.h>

#include <string>

/// What several files of these tests ask for.
namespace accel::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The message of the `c10::Error` that `f` throws; "no error" without one.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// Runs `function` as one, two and three processes.
inline void run_all(const std::string& function) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success(function, processes);
  }
}

} // namespace accel::test
