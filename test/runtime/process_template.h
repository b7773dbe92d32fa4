#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace accel::test {

/// A process of this program from which others are forked. It has loaded its
/// libraries, which takes a third of a second of a core, and has entered what
/// distributed tensors need into LibTorch's tables: most tests with processes
/// would spend their time on nothing else.
class ProcessTemplate {
 public:
  /// Forks it. To be called first thing in `main`; where this process has more
  /// than one thread already there is none.
  static void make();

  /// Whether processes with these variables can be forked from it: there is one,
  /// and none of `changed` is read before the fork.
  static bool serves(const std::vector<std::string>& changed);

  /// A new process, a child of this one, that has `environment` ("NAME=value")
  /// and these descriptors as its standard output and error, and exits with what
  /// `run_rank_function` returns. Throws `std::runtime_error`.
  static pid_t start(
      const std::vector<std::string>& environment,
      int standard_output,
      int standard_error);
};

/// What a process runs that the environment makes a rank; the exit code. In
/// multiprocess.cpp.
int run_rank_function();

} // namespace accel::test
