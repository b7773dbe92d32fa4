#include "append_file.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

namespace accel::detail {
namespace {

void check(bool ok, const char* what, const std::string& path) {
  const int error = errno;
  TORCH_CHECK(
      ok, "Could not ", what, " ", path, ": ", std::strerror(error), ".");
}

int open_file(const std::string& path, int flags) {
  const auto parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) {
    std::filesystem::create_directories(parent, error);
    TORCH_CHECK(
        !error,
        "Could not create the folder ",
        parent.string(),
        ": ",
        error.message(),
        ".");
  }
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  check(descriptor >= 0, "open", path);
  return descriptor;
}

void write_all(
    int descriptor, const std::string& bytes, const std::string& path) {
  const char* data = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t written = ::write(descriptor, data, left);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    check(written >= 0, "write to", path);
    data += written;
    left -= static_cast<size_t>(written);
  }
}

} // namespace

AppendFile::AppendFile(std::string path)
    : path_(std::move(path)), descriptor_(open_file(path_, O_APPEND)) {}

AppendFile::~AppendFile() {
  ::close(descriptor_);
}

void AppendFile::append(const std::string& bytes) {
  write_all(descriptor_, bytes, path_);
}

void AppendFile::sync() {
  check(::fsync(descriptor_) == 0, "sync", path_);
}

void replace_file(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  {
    const int descriptor = open_file(temporary, O_TRUNC);
    try {
      write_all(descriptor, content, temporary);
      check(::fsync(descriptor) == 0, "sync", temporary);
    } catch (...) {
      ::close(descriptor);
      ::unlink(temporary.c_str());
      throw;
    }
    ::close(descriptor);
  }
  check(std::rename(temporary.c_str(), path.c_str()) == 0, "replace", path);
}

std::string read_if_exists(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {
      std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double now() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

} // namespace accel::detail
