#pragma once

#include "checkpoint/files.h"
#include "checkpoint/mapped_memory.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// Large parts of files, at the speed of memory.
///
/// `pread` copies every byte once before anyone has looked at it, and so costs
/// as much as a checksum does, or as bringing the bytes to where they belong.
/// Here the system's own copy of the file is looked at through a window of a
/// few MB that goes over it: a checkpoint of 1 GB that is checked and then
/// loaded is gone over twice in less time than one plain read takes.
namespace accel::checkpoint {

/// A part of a file from front to back, in pieces of at most a few MB.
///
/// Errors of the disk and files that have become shorter are exceptions, as
/// with `InputFile::read`: a window is filled before it is looked at, and where
/// the system cannot do that it is read instead. Only a file that is made
/// shorter in the very milliseconds in which a window is looked at ends the
/// program (SIGBUS).
class FilePieces {
 public:
  /// `file` lives as long as this.
  FilePieces(const InputFile& file, uint64_t offset, uint64_t size);

  /// The next piece, which is there until the next call. Empty at the end.
  ByteSpan next();

 private:
  const char* window(uint64_t size) const;

  const InputFile& file_;
  uint64_t offset_;
  uint64_t end_;
  /// Where the mapping begins in the file.
  uint64_t begin_;
  std::optional<MappedMemory> memory_;
  /// For what is read because it cannot be looked at where it is.
  std::vector<char> buffer_;
};

/// Shows all pieces of a part to `look`.
void for_each_piece(
    const InputFile& file,
    uint64_t offset,
    uint64_t size,
    const std::function<void(const char*, size_t)>& look);

/// The same as `file.read(offset, destination, size)`, for a part of any size.
/// Large parts go past the processor's cache, which they would only empty.
void read_large(
    const InputFile& file, uint64_t offset, void* destination, size_t size);

/// The same from a file's mapping. Filled window by window, it costs a fraction
/// of the faults that a `memcpy` would run into. `source` may be any memory.
void copy_mapped(void* destination, const void* source, size_t size);

/// `memcpy`, with stores that do not fetch what they overwrite, for what is not
/// looked at soon.
void copy_past_cache(char* to, const char* from, size_t size);

} // namespace accel::checkpoint
