#include <accel/checkpoint/custom_object.h>

#include "checkpoint/files.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace accel::checkpoint::detail {
namespace {

/// All of `text`, as `parse` reads it.
template <typename T, typename Parse>
T read_all(const std::string& text, const char* kind, const Parse& parse) {
  char* end = nullptr;
  errno = 0;
  const T value = parse(text.c_str(), &end);
  TORCH_CHECK(
      !text.empty() && end == text.c_str() + text.size() && errno != ERANGE,
      "accel: the checkpoint has ",
      in_quotes(text),
      " where ",
      kind,
      " was registered.");
  return value;
}

} // namespace

std::string archive_bytes(
    const std::function<void(torch::serialize::OutputArchive&)>& save) {
  torch::serialize::OutputArchive archive;
  save(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
}

void read_archive(
    const std::string& bytes,
    const std::function<void(torch::serialize::InputArchive&)>& load) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  load(archive);
}

std::string integer_text(int64_t value) {
  return std::to_string(value);
}

std::string unsigned_text(uint64_t value) {
  return std::to_string(value);
}

std::string real_text(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

int64_t read_integer(const std::string& text) {
  return read_all<int64_t>(
      text, "a whole number", [](const char* begin, char** end) {
        return std::strtoll(begin, end, 10);
      });
}

uint64_t read_unsigned(const std::string& text) {
  return read_all<uint64_t>(
      text, "a number of at least 0", [](const char* begin, char** end) {
        // strtoull takes "-1" for a very large number.
        return *begin == '-' ? 0 : std::strtoull(begin, end, 10);
      });
}

double read_real(const std::string& text) {
  return read_all<double>(
      text, "a number", [](const char* begin, char** end) {
        const double value = std::strtod(begin, end);
        errno = 0; // a denormal number is no error
        return value;
      });
}

} // namespace accel::checkpoint::detail
