#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace accel::checkpoint {

/// Writes a large new file past the system's cache of files.
///
/// Written in the usual way, every byte is copied into that cache first, which
/// takes as long as a fast disk takes to write it, and goes to the disk when the
/// cache is full or is told to: a checkpoint of many GB makes everything else
/// that writes wait, and drives out what training reads. Here a thread hands
/// pieces of a few MB to the disk while the caller prepares the next one.
class DirectFile {
 public:
  /// For the descriptor of an empty file, which must stay open, where about
  /// `expected` bytes will come. Null where those are too few for this to pay,
  /// or on a file system where it is not known to (any but ext4 and XFS).
  /// Throws where the disk has no room for so many.
  static std::unique_ptr<DirectFile> create(
      int fd, const std::string& path, uint64_t expected);
  /// Whatever was not finished is left out.
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  /// Appends. Throws what writing an earlier piece has failed with.
  void write(const char* data, size_t size);
  /// Waits until all is handed to the disk; syncing is left to the caller. To
  /// be called once, at the end.
  void finish();

 private:
  DirectFile(int fd, std::string path);

  /// What offsets, sizes and addresses are multiples of.
  static constexpr size_t kBlock = 4096;
  static constexpr size_t kPiece = 8 << 20;
  static constexpr size_t kPieces = 3;

  struct Free {
    void operator()(char* memory) const;
  };

  char* piece(uint64_t number) const {
    return buffer_.get() + number % kPieces * kPiece;
  }
  void hand_over();
  void work();
  void write_at(uint64_t offset, const char* data, size_t size);
  void check() const;

  const int fd_;
  const std::string path_;
  std::unique_ptr<char, Free> buffer_;
  /// Of the piece that is being filled; the caller's.
  size_t filled_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by `mutex_`. Pieces `written_` … `ready_` - 1 are the thread's, the
  // others the caller's.
  uint64_t ready_ = 0;
  uint64_t written_ = 0;
  int error_ = 0;
  bool ends_ = false;

  std::thread thread_;
};

} // namespace accel::checkpoint
