#pragma once

#include "checkpoint/xxh64.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Files with errors that name them, and writes that are on the disk when they
/// are said to be. All throw `c10::Error`.
namespace accel::checkpoint {

/// A text for messages: in quotes, with control characters and bytes that are
/// no UTF-8 made visible, shortened where it is long.
std::string in_quotes(const std::string& text);

/// "No space left on device" for ENOSPC.
std::string system_message(int error);

/// An open file or directory; closes it.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const {
    return fd_;
  }

 private:
  int fd_;
};

/// A regular file that is open for reading.
class InputFile {
 public:
  explicit InputFile(std::string path);

  const std::string& path() const {
    return path_;
  }
  int descriptor() const {
    return fd_.get();
  }
  /// When it was opened.
  uint64_t size() const {
    return size_;
  }
  /// Throws where the file has become shorter.
  void read(uint64_t offset, void* destination, size_t size) const;

 private:
  std::string path_;
  Descriptor fd_;
  uint64_t size_ = 0;
};

/// What a finished file holds.
struct Digest {
  uint64_t size = 0;
  /// Of the content; with `blocks` of these, 8 bytes each, the lowest first.
  uint64_t checksum = 0;
  /// Of each `kChecksumBlock` bytes of a file that has more than that; else
  /// empty.
  std::vector<uint64_t> blocks;
};

/// XXH64 goes through a file from front to back. What several threads shall
/// check at once needs checksums of its own; one of the whole file beside them would
/// make everything be gone through a second time.
constexpr uint64_t kChecksumBlock = 32 << 20;

/// The checksums of a file that comes piece by piece.
class FileHash {
 public:
  void update(const void* data, size_t size);
  Digest digest() const;

 private:
  Xxh64 block_;
  std::vector<uint64_t> blocks_;
  uint64_t size_ = 0;
};

/// Bytes of somebody else's.
struct ByteSpan {
  const char* data;
  size_t size;
};

/// A new file; an old one of that name is emptied.
///
/// With `sync` the disk begins to write while the file still grows, so that
/// `finish` has little left to wait for, and where there is a core for it large
/// parts are hashed while they are written: the disk, the system's copy and the
/// checksums take as long as the slowest of them, not as long as all three. Where there
/// is none, each piece is hashed when it has been written, out of the processor's cache.
class OutputFile {
 public:
  explicit OutputFile(std::string path, bool sync = true);

  void write(const void* data, size_t size);
  /// One after another. The more there is in one call, the more is done at
  /// once.
  void write(const std::vector<ByteSpan>& parts);
  /// With `sync` waits until everything is on the disk. To be called once, at
  /// the end.
  Digest finish();

 private:
  void store(const std::vector<ByteSpan>& parts, bool hash);

  std::string path_;
  bool sync_;
  Descriptor fd_;
  FileHash hash_;
  /// What `store` was given, and how much of it the disk was told to write.
  uint64_t size_ = 0;
  uint64_t begun_ = 0;
};

/// A whole file; throws where it is larger than `limit` bytes.
std::string read_text(const std::string& path, uint64_t limit = 1u << 30);
Digest write_text(
    const std::string& path, const std::string& text, bool sync = true);
/// Reads a file for its checksum; with `sync` it is on the disk afterwards.
Digest digest_file(const std::string& path, bool sync = false);

/// Waits until the directory's entries (new names, renames) are on the disk.
void sync_directory(const std::string& path);
/// Replaces `to` where it is a file or an empty directory.
void rename_path(const std::string& from, const std::string& to);
/// ".{name}.incomplete" beside `path`: where a file or directory is written
/// before it gets its name.
std::string temporary_path(const std::string& path);
/// The directory that holds `path`.
std::string parent_path(const std::string& path);

} // namespace accel::checkpoint
