#pragma once

#include "checkpoint/files.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace accel::checkpoint {

/// A part of a file that is about to be read.
struct FilePart {
  std::string path;
  uint64_t offset;
  uint64_t size;
};

/// Brings parts of files from the disk, in their order, on a thread of its own.
///
/// A disk is fastest where one reader goes through a file from front to back:
/// the system then works ahead of it. Several threads that each read a part are
/// no such reader, so they wait here until their part is in memory, and look at
/// it while the next ones come. What is in memory already costs a few calls.
class FilePull {
 public:
  explicit FilePull(std::vector<FilePart> parts);
  ~FilePull();
  FilePull(const FilePull&) = delete;
  FilePull& operator=(const FilePull&) = delete;

  /// Returns when part `index` is in memory, or cannot be brought: who reads it
  /// will see why.
  void wait(size_t index);

 private:
  void run();

  std::vector<FilePart> parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  /// How many parts are done with.
  size_t done_ = 0;
  std::thread thread_;
};

} // namespace accel::checkpoint
