#pragma once

#include "checkpoint/files.h"

#include <cstddef>
#include <cstdint>
#include <functional>

/// Large parts of files, at the speed of memory.
///
/// `pread` copies every byte once before anyone has looked at it, and so costs
/// as much as a checksum does, or as bringing the bytes to where they belong.
/// Here the system's own copy of the file is looked at through a window of a
/// few MB that goes over it: a checkpoint of 1 GB that is checked and then
/// loaded is gone over twice in less time than one plain read takes.
namespace accel::checkpoint {

/// Shows `size` bytes of `file` from `offset` on to `look`, in their order and
/// in pieces of at most a few MB, which are there during the call only.
///
/// Errors of the disk and files that have become shorter are exceptions, as
/// with `InputFile::read`: a window is filled before it is looked at, and where
/// the system cannot do that it is read instead. Only a file that is made
/// shorter in the very milliseconds in which a window is looked at ends the
/// program (SIGBUS).
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
