#pragma once

#include <accel/export.h>

#include <cstdio>
#include <istream>

namespace accel::detail {

/// Standard input, which only process 0 has: members of `Accelerator`. With one
/// process they are `std::cin` and `stdin` themselves.
///
/// With several, process 0 reads what there is (a line of a terminal, what is in
/// a pipe, 64 KiB of a file) and sends it to the others when a read needs more
/// characters than it has; all get the same ones, and meet the end of input and
/// errors at the same place. Reading is so collective: every process must read
/// the same, in the same order, on the thread that trains. A process that has
/// died makes the others throw `c10::Error`, as in any collective operation;
/// while process 0 waits for input, `timeout` does not count.
///
/// What the program reads elsewhere, from `std::cin` or `stdin` themselves, only
/// process 0 gets, and the others do not know of it.
class ACCEL_API SharedInput {
 public:
  /// For `std::cin`. It reads through `c_stdin()`, character by character, so
  /// that the two may be mixed. It flushes `cout()` before it reads, as
  /// `std::cin` does.
  ///
  ///     accelerator.cout() << "epochs: ";
  ///     accelerator.cin() >> epochs;
  std::istream& cin() const;

  /// For C's functions. Throws `c10::Error` where the stream cannot be made.
  ///
  ///     std::fscanf(accelerator.c_stdin(), "%d", &epochs); // scanf
  ///     std::getc(accelerator.c_stdin()); // getchar
  ///     std::fgets(line, sizeof line, accelerator.c_stdin());
  ///
  /// It has no file descriptor (`fileno`) and cannot seek.
  std::FILE* c_stdin() const;
};

} // namespace accel::detail
