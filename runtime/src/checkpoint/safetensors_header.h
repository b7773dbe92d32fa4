#pragma once

#include <accel/checkpoint/safetensors.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::checkpoint {

/// Larger headers are refused, as by all readers.
constexpr uint64_t kMaxHeaderSize = 100'000'000;

/// The format's name of a dtype; null for a dtype that it does not have.
const char* dtype_name(at::ScalarType dtype);
/// Empty for a name that is unknown or has no dtype in LibTorch.
std::optional<at::ScalarType> dtype_of(const std::string& name);
/// Tensors of higher rank come first in a file.
int dtype_rank(at::ScalarType dtype);

/// What a header says, checked completely.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  /// In the order of their bytes.
  std::vector<TensorInfo> tensors;
};

/// Parses the JSON text of a header. `data_start` and `file_size` are those of
/// the file, `path` its name in messages.
SafetensorsHeader parse_header(
    const std::string& json,
    uint64_t data_start,
    uint64_t file_size,
    const std::string& path);

} // namespace accel::checkpoint
