#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::checkpoint {

struct HashInput;

/// XXH64 with seed 0, fed piece by piece.
///
/// Why this checksum: it must not slow down saving and loading, which run at
/// several GB/s. SHA-256 without special instructions makes 0.3 GB/s, zlib's
/// CRC-32 about 1; XXH64 makes more than 10 in portable C++, catches random
/// errors with 64 bits, and `xxhsum -H64` and Python's xxhash check it. It is
/// no protection against someone who changes files on purpose.
class Xxh64 {
 public:
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  friend void update_at_once(std::vector<HashInput> inputs);

  uint64_t lanes_[4] = {
      0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579};
  unsigned char pending_[32] = {};
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

/// What one hash is fed.
struct HashInput {
  Xxh64* hash;
  const unsigned char* data;
  size_t size;
};

/// How many hashes are fed at once.
constexpr size_t kHashesAtOnce = 4;

/// Updates up to `kHashesAtOnce` hashes, each with its own data. A single hash waits
/// for its own multiplications; several in vector registers go as fast as memory is
/// read.
void update_at_once(std::vector<HashInput> inputs);

/// Of one piece.
uint64_t xxh64(const void* data, size_t size);

} // namespace accel::checkpoint
