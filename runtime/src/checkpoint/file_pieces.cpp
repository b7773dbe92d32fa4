#include "checkpoint/file_pieces.h"

#include "checkpoint/mapped_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace accel::checkpoint {

namespace {

/// Large enough that making a window costs nothing beside looking at it, small
/// enough that its pages are in use for a moment only.
constexpr uint64_t kWindow = 4 << 20;

/// Below this a window costs more than it saves.
constexpr uint64_t kSmall = 128 << 10;

/// Of a part that is read because it cannot be looked at where it is.
constexpr uint64_t kReadChunk = 256 << 10;

/// A part of a file in memory.
class FileView {
 public:
  FileView(const InputFile& file, uint64_t offset, uint64_t size)
      : begin_(offset / page_size() * page_size()),
        memory_(
            static_cast<size_t>(offset - begin_ + size),
            PROT_READ,
            MAP_SHARED,
            file.descriptor(),
            static_cast<off_t>(begin_)) {
    if (memory_) {
      advise_large_pages(memory_);
      // The disk works ahead.
      ::madvise(memory_.data(), memory_.size(), MADV_SEQUENTIAL);
    }
  }

  /// The bytes from `offset` of the file on, `size` of which are there
  /// completely; null where the system cannot do that.
  const char* window(uint64_t offset, uint64_t size) const {
#ifdef MADV_POPULATE_READ
    if (memory_) {
      char* data = memory_.data() + (offset - begin_);
      const uint64_t before = offset % page_size();
      // Looking at a page that cannot be read would end the program; this says
      // so beforehand.
      if (::madvise(data - before, size + before, MADV_POPULATE_READ) == 0) {
        return data;
      }
    }
#else
    (void)offset, (void)size;
#endif
    return nullptr;
  }

 private:
  uint64_t begin_;
  MappedMemory memory_;
};

void read_pieces(
    const InputFile& file,
    uint64_t offset,
    uint64_t size,
    const std::function<void(const char*, size_t)>& look) {
  std::vector<char> buffer(std::min(size, kReadChunk));
  while (size > 0) {
    const uint64_t part = std::min<uint64_t>(size, buffer.size());
    file.read(offset, buffer.data(), part);
    look(buffer.data(), part);
    offset += part;
    size -= part;
  }
}

} // namespace

void copy_past_cache(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  const size_t head =
      std::min(size, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= size; done += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* destination = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(destination, a);
    _mm_stream_si128(destination + 1, b);
    _mm_stream_si128(destination + 2, c);
    _mm_stream_si128(destination + 3, d);
  }
  // Such stores are not in order with others; a thread that is told that the
  // tensor is there must find it.
  _mm_sfence();
  std::memcpy(to + done, from + done, size - done);
#else
  std::memcpy(to, from, size);
#endif
}

void for_each_piece(
    const InputFile& file,
    uint64_t offset,
    uint64_t size,
    const std::function<void(const char*, size_t)>& look) {
  if (size <= kSmall) {
    read_pieces(file, offset, size, look);
    return;
  }
  const uint64_t end = offset + size;
  const FileView view(file, offset, size);
  while (offset < end) {
    // Windows begin at multiples of their size, so that large pages fit.
    const uint64_t part = std::min(end - offset, kWindow - offset % kWindow);
    if (const char* data = view.window(offset, part)) {
      look(data, part);
    } else {
      read_pieces(file, offset, part, look);
    }
    offset += part;
  }
}

void read_large(
    const InputFile& file, uint64_t offset, void* destination, size_t size) {
  if (size <= kSmall) {
    file.read(offset, destination, size);
    return;
  }
  auto* to = static_cast<char*>(destination);
  for_each_piece(file, offset, size, [&](const char* data, size_t part) {
    copy_past_cache(to, data, part);
    to += part;
  });
}

void copy_mapped(void* destination, const void* source, size_t size) {
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  while (size > 0) {
    const size_t part = std::min<size_t>(
        size, kWindow - reinterpret_cast<uintptr_t>(from) % kWindow);
#ifdef MADV_POPULATE_READ
    const uintptr_t before = reinterpret_cast<uintptr_t>(from) % page_size();
    TORCH_CHECK(
        size <= kSmall ||
            ::madvise(
                const_cast<char*>(from) - before,
                part + before,
                MADV_POPULATE_READ) == 0 ||
            errno != EFAULT,
        "A file that is being loaded cannot be read any more: the disk has an "
        "error, or the file has become shorter");
#endif
    copy_past_cache(to, from, part);
    to += part;
    from += part;
    size -= part;
  }
}

} // namespace accel::checkpoint
