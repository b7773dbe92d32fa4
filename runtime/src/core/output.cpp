#include <accel/accelerator.h>

#include "written_files.h"

#include <c10/util/Exception.h>

#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <streambuf>

namespace accel {
namespace {

constexpr const char* kNullDevice = "/dev/null";

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

std::FILE* Accelerator::c_stdout() const {
  if (is_main_process()) {
    return stdout;
  }
  // Kept open: whoever was given it may print until the program ends.
  static std::FILE* nowhere = std::fopen(kNullDevice, "w");
  TORCH_CHECK(
      nowhere, "accel: ", kNullDevice, " cannot be opened for writing.");
  return nowhere;
}

const char* Accelerator::main_process_path(const char* path) const {
  if (num_processes() > 1 && detail::WrittenFiles::get().opened(path)) {
    wait_for_everyone();
  }
  return is_main_process() ? path : kNullDevice;
}

std::string Accelerator::main_process_path(const std::string& path) const {
  return main_process_path(path.c_str());
}

std::filesystem::path Accelerator::main_process_path(
    const std::filesystem::path& path) const {
  return main_process_path(path.string());
}

const char* Accelerator::readable_path(const char* path) const {
  if (num_processes() > 1 && detail::WrittenFiles::get().read(path)) {
    wait_for_everyone();
  }
  return path;
}

std::string Accelerator::readable_path(const std::string& path) const {
  return readable_path(path.c_str());
}

std::filesystem::path Accelerator::readable_path(
    const std::filesystem::path& path) const {
  readable_path(path.c_str());
  return path;
}

const char* Accelerator::main_process_command(const char* command) const {
  return is_main_process() ? command : "cat >/dev/null";
}

} // namespace accel
