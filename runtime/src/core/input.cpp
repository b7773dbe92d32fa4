#include <accel/input.h>

#include "core/runtime.h"

#include <c10/util/Exception.h>

#include <ext/stdio_sync_filebuf.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>

namespace accel::detail {
namespace {

/// Characters that travel at once, at most.
constexpr size_t kPiece = 1 << 16;
/// How long the others wait in one operation while process 0 waits for input, at
/// most: less than the time after which a process is asked why it does not come.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::seconds(10);

/// What process 0 tells the others before the characters.
struct Announcement {
  int64_t characters = 0; ///< 0 at the end of input
  int64_t error = 0; ///< errno, where reading has failed
  int64_t waits = 0; ///< nothing yet: another announcement follows
};

/// Characters that stdio has read from the file and nobody has had.
size_t buffered(const std::FILE* file) {
  return static_cast<size_t>(file->_IO_read_end - file->_IO_read_ptr);
}

/// Whether `getc` returns at once; waits so long until it does.
bool ready(std::FILE* file, std::chrono::milliseconds wait_at_most) {
  if (buffered(file) > 0) {
    return true;
  }
  pollfd wait{::fileno(file), POLLIN, 0};
  // Errors and signals are what `getc` will tell.
  return wait.fd < 0 || ::poll(&wait, 1, static_cast<int>(wait_at_most.count())) != 0;
}

bool is_regular(std::FILE* file) {
  struct stat status {};
  const int descriptor = ::fileno(file);
  return descriptor >= 0 && ::fstat(descriptor, &status) == 0 &&
      S_ISREG(status.st_mode);
}

/// Reads at least one character and, without waiting, what else there is.
Announcement read_piece(
    std::FILE* file,
    char* to,
    size_t size,
    std::chrono::milliseconds wait_at_most) {
  Announcement read;
  if (!ready(file, wait_at_most)) {
    read.waits = 1;
    return read;
  }
  std::clearerr(file); // or a terminal's end would be its last
  errno = 0;
  if (is_regular(file)) {
    read.characters = static_cast<int64_t>(std::fread(to, 1, size, file));
  } else if (const int first = std::getc(file); first != EOF) {
    to[0] = static_cast<char>(first);
    read.characters = 1 +
        static_cast<int64_t>(std::fread(
            to + 1, 1, std::min(size - 1, buffered(file)), file));
  }
  if (read.characters == 0 && std::ferror(file) != 0) {
    read.error = errno == 0 ? EIO : errno;
  }
  return read;
}

/// The next characters of process 0's standard input, on all processes: their
/// number, 0 at the end, -1 and `errno` where they cannot be read.
ssize_t read_together(void* /*cookie*/, char* to, size_t size) {
  auto& runtime = Runtime::require();
  auto& processes = runtime.communicator();
  const bool reads = runtime.state().is_main_process();
  const auto wait = std::min(kLongestWait, runtime.state().options().timeout / 4);
  Announcement piece;
  if (reads) {
    // A prompt is to be seen before somebody is waited for.
    std::fflush(stdout);
  }
  do {
    if (reads) {
      piece = read_piece(stdin, to, size, wait);
    }
    auto announced = at::from_blob(
        &piece,
        {static_cast<int64_t>(sizeof piece)},
        at::TensorOptions().dtype(at::kByte));
    processes.broadcast(announced, /*source=*/0);
  } while (piece.waits != 0);
  if (piece.error != 0) {
    errno = static_cast<int>(piece.error);
    return -1;
  }
  TORCH_CHECK(
      piece.characters <= static_cast<int64_t>(size),
      "accel: process 0 has read ",
      piece.characters,
      " characters of standard input where this process has asked for ",
      size,
      ". The processes must read the same, in the same order.");
  if (piece.characters > 0) {
    auto characters = at::from_blob(
        to, {piece.characters}, at::TensorOptions().dtype(at::kByte));
    processes.broadcast(characters, /*source=*/0);
  }
  return static_cast<ssize_t>(piece.characters);
}

/// One for the program: it has what was read and not used yet.
std::FILE* shared_file() {
  static std::FILE* const file = [] {
    cookie_io_functions_t functions{};
    functions.read = read_together;
    std::FILE* made = ::fopencookie(nullptr, "r", functions);
    TORCH_CHECK(
        made != nullptr && std::setvbuf(made, nullptr, _IOFBF, kPiece) == 0,
        "accel: the stream for standard input cannot be made: ",
        std::strerror(errno));
    // One thread may read, and an error that is thrown leaves no lock behind.
    ::__fsetlocking(made, FSETLOCKING_BYCALLER);
    return made;
  }();
  return file;
}

} // namespace

std::FILE* SharedInput::c_stdin() const {
  return Runtime::require().state().use_distributed() ? shared_file() : stdin;
}

std::istream& SharedInput::cin() const {
  const auto& process = Runtime::require().state();
  if (!process.use_distributed()) {
    return std::cin;
  }
  // Never destroyed: destructors at the program's end may read.
  static auto* const buffer =
      new __gnu_cxx::stdio_sync_filebuf<char>(shared_file());
  static auto* const stream = [&] {
    auto* made = new std::istream(buffer);
    // An error of the processes is none of the input: it is thrown, as it is
    // everywhere, instead of setting badbit.
    made->exceptions(std::ios::badbit);
    if (process.is_main_process()) {
      made->tie(&std::cout);
    }
    return made;
  }();
  return *stream;
}

} // namespace accel::detail
