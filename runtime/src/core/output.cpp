#include <accel/accelerator.h>

#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <streambuf>

namespace accel {
namespace {

/// Takes everything, keeps nothing. The stream above it stays good, so that
/// manipulators and checks behave as they do on the main process.
class NullBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override {
    return traits_type::not_eof(character);
  }
  std::streamsize xsputn(const char*, std::streamsize count) override {
    return count;
  }
};

std::ostream& null_stream() {
  static NullBuffer buffer;
  static std::ostream stream(&buffer);
  return stream;
}

} // namespace

std::ostream& Accelerator::cout() {
  return is_main_process() ? std::cout : null_stream();
}

std::ostream& Accelerator::cerr() {
  static NullBuffer buffer;
  static std::ostream stream(&buffer);
  return is_main_process() ? std::cerr : stream;
}

int Accelerator::printf(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const int count = is_main_process()
      ? std::vprintf(format, arguments)
      : std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  return count;
}

} // namespace accel
