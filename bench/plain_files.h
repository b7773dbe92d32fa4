#pragma once

#include <torch/torch.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

// What checkpoints are compared with: bytes that are written and read plainly.
namespace bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// "save_state 0.500 s, plain write 0.400 s, ratio 1.250 (least: …)".
inline void print_pair(
    const char* ours,
    const std::vector<double>& a,
    const char* peer,
    const std::vector<double>& b) {
  std::printf(
      "%s %.3f s, %s %.3f s, ratio %.3f (least: %.3f s, %.3f s, ratio %.3f)\n",
      ours,
      median(a),
      peer,
      median(b),
      median(a) / median(b),
      least(a),
      least(b),
      least(a) / least(b));
}

template <typename Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now() - start)
      .count();
}

inline void require(bool condition, const char* what) {
  if (!condition) {
    std::perror(what);
    std::exit(1);
  }
}

inline void sync_directory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  require(fd >= 0 && ::fsync(fd) == 0 && ::close(fd) == 0, "fsync");
}

inline void write_all(int fd, const torch::Tensor& tensor) {
  const char* data = static_cast<const char*>(tensor.const_data_ptr());
  for (size_t done = 0; done < tensor.nbytes();) {
    const ssize_t count = ::write(
        fd, data + done, std::min(tensor.nbytes() - done, size_t{1} << 20));
    require(count > 0, "write");
    done += static_cast<size_t>(count);
  }
}

inline void read_all(int fd, torch::Tensor& tensor) {
  char* data = static_cast<char*>(tensor.mutable_data_ptr());
  for (size_t done = 0; done < tensor.nbytes();) {
    const ssize_t count = ::read(fd, data + done, tensor.nbytes() - done);
    require(count > 0, "read");
    done += static_cast<size_t>(count);
  }
}

/// Takes the files of the directory out of the system's memory.
inline void forget(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      const int fd = ::open(entry.path().c_str(), O_RDONLY);
      require(
          fd >= 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
              ::close(fd) == 0,
          "fadvise");
    }
  }
}

} // namespace bench
