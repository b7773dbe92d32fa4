#pragma once

#include <cstdint>
#include <string>

namespace accel::detail {

/// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t crc32c(const std::string& bytes);

/// The form in which TFRecord files hold it: rotated and offset, so that a
/// checksum over data that contains checksums is not degenerate.
uint32_t masked_crc32c(const std::string& bytes);

} // namespace accel::detail
