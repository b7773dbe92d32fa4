#include "checkpoint/file_pieces.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

#ifdef __SSE2__
constexpr size_t kLine = 64;

/// One line of the cache, to a multiple of its size.
inline void copy_line_past_cache(char* to, const char* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* destination = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(destination, a);
  _mm_stream_si128(destination + 1, b);
  _mm_stream_si128(destination + 2, c);
  _mm_stream_si128(destination + 3, d);
}
#endif

} // namespace

void copy_past_cache(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  const size_t head =
      std::min(size, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  // Both halves at once: the processor fetches ahead for each of them.
  const size_t half = (size - head) / (2 * kLine) * kLine;
  for (size_t i = head; i < head + half; i += kLine) {
    copy_line_past_cache(to + i, from + i);
    copy_line_past_cache(to + i + half, from + i + half);
  }
  const size_t done = head + 2 * half;
  // Such stores are not in order with others; a thread that is told that the
  // tensor is there must find it.
  _mm_sfence();
  std::memcpy(to + done, from + done, size - done);
#else
  std::memcpy(to, from, size);
#endif
}

FilePieces::FilePieces(const InputFile& file, uint64_t offset, uint64_t size)
    : file_(file),
      offset_(offset),
      end_(offset + size),
      begin_(offset / page_size() * page_size()) {
  if (size <= kSmall) {
    return;
  }
  memory_.emplace(
      static_cast<size_t>(end_ - begin_),
      PROT_READ,
      MAP_SHARED,
      file.descriptor(),
      static_cast<off_t>(begin_));
  if (*memory_) {
    advise_large_pages(*memory_);
    // The disk works ahead.
    ::madvise(memory_->data(), memory_->size(), MADV_SEQUENTIAL);
  }
}

/// The next `size` bytes, which are there completely; null where the system
/// cannot do that.
const char* FilePieces::window(uint64_t size) const {
#ifdef MADV_POPULATE_READ
  if (memory_ && *memory_) {
    char* data = memory_->data() + (offset_ - begin_);
    const uint64_t before = offset_ % page_size();
    // Looking at a page that cannot be read would end the program; this says
    // so beforehand.
    if (::madvise(data - before, size + before, MADV_POPULATE_READ) == 0) {
      return data;
    }
  }
#else
  (void)size;
#endif
  return nullptr;
}

ByteSpan FilePieces::next() {
  if (offset_ == end_) {
    return {nullptr, 0};
  }
  // Windows begin at multiples of their size, so that large pages fit.
  uint64_t size = std::min(end_ - offset_, kWindow - offset_ % kWindow);
  const char* data = window(size);
  if (data == nullptr) {
    size = std::min(size, kReadChunk);
    buffer_.resize(size);
    file_.read(offset_, buffer_.data(), size);
    data = buffer_.data();
  }
  offset_ += size;
  return {data, size};
}

void for_each_piece(
    const InputFile& file,
    uint64_t offset,
    uint64_t size,
    const std::function<void(const char*, size_t)>& look) {
  FilePieces pieces(file, offset, size);
  for (auto piece = pieces.next(); piece.size > 0; piece = pieces.next()) {
    look(piece.data, piece.size);
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
