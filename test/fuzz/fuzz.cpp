#include "fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace accel::fuzz {

void require(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
  }
}

void note(const char* message) {
  static const bool verbose = std::getenv("ACCEL_FUZZ_VERBOSE") != nullptr;
  if (verbose) {
    std::fprintf(stderr, "    refused: %.300s\n", message);
  }
}

const std::filesystem::path& scratch() {
  static const struct Scratch {
    Scratch() {
      const std::filesystem::path memory = "/dev/shm";
      path = (std::filesystem::is_directory(memory)
                  ? memory
                  : std::filesystem::temp_directory_path()) /
          ("accel-fuzz-" + std::to_string(::getpid()));
      std::filesystem::create_directory(path);
    }
    ~Scratch() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::filesystem::path path;
  } directory;
  return directory.path;
}

std::string file_with(const std::string& name, std::string_view bytes) {
  const std::string path = (scratch() / name).string();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  require(file.good(), "the input can be written to the scratch directory");
  return path;
}

std::vector<std::string> pieces(std::string_view input, size_t count) {
  std::vector<std::string> result(1);
  for (const char c : input) {
    if (c == '\0') {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  result.resize(std::max(result.size(), count));
  return result;
}

} // namespace accel::fuzz

// What libFuzzer calls.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const accel::fuzz::Target target = [] {
    const char* name = std::getenv("ACCEL_FUZZ_TARGET");
    const auto& all = accel::fuzz::targets();
    const auto found = name == nullptr ? all.end() : all.find(name);
    if (found == all.end()) {
      std::fprintf(stderr, "ACCEL_FUZZ_TARGET must be one of:");
      for (const auto& known : all) {
        std::fprintf(stderr, " %s", known.first.c_str());
      }
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
    return found->second;
  }();
  target({reinterpret_cast<const char*>(data), size});
  return 0;
}
