#pragma once

#include <cstdint>
#include <string_view>

namespace accel::detail {

/// FNV-1a; equal on all machines, unlike std::hash.
inline uint64_t text_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

} // namespace accel::detail
