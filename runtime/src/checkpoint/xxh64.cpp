#include "checkpoint/xxh64.h"

#include <algorithm>
#include <cstring>

namespace accel::checkpoint {

namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

uint64_t rotate(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

uint64_t round(uint64_t lane, uint64_t input) {
  return rotate(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t load64(const unsigned char* data) {
  uint64_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

uint32_t load32(const unsigned char* data) {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

/// Consumes whole blocks of 32 bytes.
void rounds(uint64_t* lanes, const unsigned char* data, size_t blocks) {
  uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
  for (; blocks > 0; --blocks, data += 32) {
    a = round(a, load64(data));
    b = round(b, load64(data + 8));
    c = round(c, load64(data + 16));
    d = round(d, load64(data + 24));
  }
  lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
}

/// `rounds` of `kHashesAtOnce` hashes.
using RoundsAtOnce = void (*)(
    uint64_t* const* lanes, const unsigned char* const* data, size_t blocks);

#ifdef __x86_64__
using Lanes [[gnu::vector_size(32)]] = uint64_t;

[[gnu::always_inline]] inline void rounds_at_once(
    uint64_t* const* lanes, const unsigned char* const* data, size_t blocks) {
  Lanes hashes[kHashesAtOnce];
  for (size_t i = 0; i < kHashesAtOnce; ++i) {
    std::memcpy(&hashes[i], lanes[i], sizeof(Lanes));
  }
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < kHashesAtOnce; ++i) {
      Lanes input;
      std::memcpy(&input, data[i] + block * sizeof(Lanes), sizeof(Lanes));
      const Lanes sum = hashes[i] + input * kPrime2;
      hashes[i] = ((sum << 31) | (sum >> 33)) * kPrime1;
    }
  }
  for (size_t i = 0; i < kHashesAtOnce; ++i) {
    std::memcpy(lanes[i], &hashes[i], sizeof(Lanes));
  }
}

[[gnu::target("avx512dq,avx512vl")]] void rounds_avx512(
    uint64_t* const* lanes, const unsigned char* const* data, size_t blocks) {
  rounds_at_once(lanes, data, blocks);
}

[[gnu::target("avx2")]] void rounds_avx2(
    uint64_t* const* lanes, const unsigned char* const* data, size_t blocks) {
  rounds_at_once(lanes, data, blocks);
}
#endif

/// How this processor feeds several hashes at once, and how many there must be
/// for that to be faster than one after the other.
struct AtOnce {
  RoundsAtOnce rounds;
  size_t least;
};

AtOnce choose_at_once() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {rounds_avx512, 2};
  }
  if (__builtin_cpu_supports("avx2")) {
    return {rounds_avx2, 3};
  }
#endif
  return {nullptr, SIZE_MAX};
}

} // namespace

void Xxh64::update(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  if (pending_size_ > 0) {
    const size_t part = std::min(size, sizeof(pending_) - pending_size_);
    std::memcpy(pending_ + pending_size_, bytes, part);
    pending_size_ += part;
    bytes += part;
    size -= part;
    if (pending_size_ < sizeof(pending_)) {
      return;
    }
    rounds(lanes_, pending_, 1);
    pending_size_ = 0;
  }
  rounds(lanes_, bytes, size / 32);
  pending_size_ = size % 32;
  if (pending_size_ > 0) {
    std::memcpy(pending_, bytes + (size - pending_size_), pending_size_);
  }
}

uint64_t Xxh64::digest() const {
  uint64_t hash = kPrime5;
  if (total_ >= 32) {
    hash = rotate(lanes_[0], 1) + rotate(lanes_[1], 7) + rotate(lanes_[2], 12) +
           rotate(lanes_[3], 18);
    for (const uint64_t lane : lanes_) {
      hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
    }
  }
  hash += total_;
  const unsigned char* data = pending_;
  size_t left = pending_size_;
  for (; left >= 8; left -= 8, data += 8) {
    hash = rotate(hash ^ round(0, load64(data)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = rotate(hash ^ (load32(data) * kPrime1), 23) * kPrime2 + kPrime3;
    left -= 4, data += 4;
  }
  for (; left > 0; --left, ++data) {
    hash = rotate(hash ^ (*data * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

void update_at_once(std::vector<HashInput> inputs) {
  static const AtOnce at_once = choose_at_once();
  bool whole = inputs.size() <= kHashesAtOnce;
  for (const auto& input : inputs) {
    whole = whole && input.hash->pending_size_ == 0;
  }
  while (whole && inputs.size() >= at_once.least) {
    size_t blocks = SIZE_MAX;
    for (const auto& input : inputs) {
      blocks = std::min(blocks, input.size / 32);
    }
    // What is missing is made up for with the first one's data, for nobody.
    uint64_t nobody[4] = {};
    uint64_t* lanes[kHashesAtOnce];
    const unsigned char* data[kHashesAtOnce];
    for (size_t i = 0; i < kHashesAtOnce; ++i) {
      const bool is_there = i < inputs.size();
      lanes[i] = is_there ? inputs[i].hash->lanes_ : nobody;
      data[i] = inputs[is_there ? i : 0].data;
    }
    at_once.rounds(lanes, data, blocks);
    for (auto input = inputs.begin(); input != inputs.end();) {
      input->hash->total_ += blocks * 32;
      input->data += blocks * 32;
      input->size -= blocks * 32;
      if (input->size < 32) {
        input->hash->update(input->data, input->size);
        input = inputs.erase(input);
      } else {
        ++input;
      }
    }
  }
  for (const auto& input : inputs) {
    input.hash->update(input.data, input.size);
  }
}

uint64_t xxh64(const void* data, size_t size) {
  Xxh64 hash;
  hash.update(data, size);
  return hash.digest();
}

} // namespace accel::checkpoint
