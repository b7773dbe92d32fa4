#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace accel::checkpoint {

/// What offsets of files and lengths of windows are multiples of.
inline uint64_t page_size() {
  static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

/// What `mmap` has given; gives it back.
class MappedMemory {
 public:
  /// None where the system refuses (see `operator bool`); errno says why.
  MappedMemory(size_t size, int protection, int flags, int fd, off_t offset)
      : address_(::mmap(nullptr, size, protection, flags, fd, offset)),
        size_(size) {}
  ~MappedMemory() {
    if (*this) {
      ::munmap(address_, size_);
    }
  }
  MappedMemory(MappedMemory&& other) noexcept
      : address_(std::exchange(other.address_, MAP_FAILED)),
        size_(other.size_) {}
  MappedMemory& operator=(MappedMemory&&) = delete;

  explicit operator bool() const {
    return address_ != MAP_FAILED;
  }
  char* data() const {
    return static_cast<char*>(address_);
  }
  size_t size() const {
    return size_;
  }

 private:
  void* address_;
  size_t size_;
};

/// What is read from a file through its mapping, or what new memory is made of,
/// is kept in large pages where the system can: single small ones take longer to
/// get than what is in them. (POSIX_FADV_WILLNEED would read into small ones.)
inline void advise_large_pages(const MappedMemory& memory) {
#ifdef MADV_HUGEPAGE
  ::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
#else
  (void)memory;
#endif
}

} // namespace accel::checkpoint
