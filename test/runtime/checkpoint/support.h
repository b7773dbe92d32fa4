#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "build_paths.h"

namespace accel::checkpoint::test {

/// A directory of its own for a test; gone with it.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(
      const std::filesystem::path& parent =
          std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "accel-ckpt-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const {
    return (path_ / name).string();
  }
  std::string path() const {
    return path_.string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  ASSERT_TRUE(file.flush().good()) << path;
}

/// The folder with the vectors recorded from Accelerate.
inline std::string golden(const std::string& name) {
  const char* other = std::getenv("ACCEL_GOLDEN_DIR");
  return (other ? std::string(other)
                : std::string(build_paths::kConformance) + "/golden") +
      "/checkpoint/" + name;
}

/// The message of the `c10::Error` that `code` throws; empty where it throws
/// none.
inline std::string error_of(const std::function<void()>& code) {
  try {
    code();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// `code` throws a `c10::Error` whose message contains `part`.
#define EXPECT_ERROR(code, part)                                            \
  EXPECT_PRED2(                                                             \
      [](const std::string& message, const std::string& text) {             \
        return !message.empty() && message.find(text) != std::string::npos; \
      },                                                                    \
      ::accel::checkpoint::test::error_of([&] { code; }),                   \
      std::string(part))

/// Whether two tensors have the same dtype, shape and bits.
inline bool identical(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.detach().cpu().contiguous();
  const auto y = b.detach().cpu().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 ||
          std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// The model of the golden files.
inline torch::nn::Sequential golden_model() {
  return torch::nn::Sequential(
      torch::nn::Linear(6, 40),
      torch::nn::BatchNorm1d(40),
      torch::nn::ReLU(),
      torch::nn::Linear(40, 3));
}

} // namespace accel::checkpoint::test
