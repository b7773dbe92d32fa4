#include "tensor_archive.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace accel::verify {
namespace {

template <typename T>
std::vector<double> decode(const char* bytes, size_t size) {
  std::vector<double> values(size / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

double half_to_double(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {
    const double value = fraction / 16777216.0; // 2^-24
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return from_bits(sign | wide << 23 | fraction << 13);
}

template <typename Convert>
std::vector<double> decode_16(const char* bytes, size_t size, Convert convert) {
  std::vector<double> values(size / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t value;
    std::memcpy(&value, bytes + 2 * i, 2);
    values[i] = convert(value);
  }
  return values;
}

size_t element_size(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") {
    return 8;
  }
  if (dtype == "F32" || dtype == "I32") {
    return 4;
  }
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") {
    return 2;
  }
  return dtype == "I8" || dtype == "U8" || dtype == "BOOL" ? 1 : 0;
}

} // namespace

std::optional<std::vector<double>> decode_numbers(
    const std::string& dtype, const char* bytes, size_t size) {
  const size_t element = element_size(dtype);
  if (element == 0 || size % element != 0) {
    return std::nullopt;
  }
  if (dtype == "F64") {
    return decode<double>(bytes, size);
  }
  if (dtype == "F32") {
    return decode<float>(bytes, size);
  }
  if (dtype == "F16") {
    return decode_16(bytes, size, half_to_double);
  }
  if (dtype == "BF16") {
    return decode_16(bytes, size, [](uint16_t value) {
      return static_cast<double>(from_bits(static_cast<uint32_t>(value) << 16));
    });
  }
  if (dtype == "I64") {
    return decode<int64_t>(bytes, size);
  }
  if (dtype == "I32") {
    return decode<int32_t>(bytes, size);
  }
  if (dtype == "I16") {
    return decode<int16_t>(bytes, size);
  }
  if (dtype == "I8") {
    return decode<int8_t>(bytes, size);
  }
  return decode<uint8_t>(bytes, size);
}

std::optional<StoredTensors> read_safetensors(const std::string& bytes) {
  uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) {
    return std::nullopt;
  }
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  if (header_size < 2 || header_size > bytes.size() - sizeof(header_size) ||
      bytes[sizeof(header_size)] != '{') {
    return std::nullopt;
  }
  const char* header = bytes.data() + sizeof(header_size);
  const auto json = nlohmann::json::parse(
      header, header + header_size, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  const char* data = header + header_size;
  const size_t data_size = bytes.size() - sizeof(header_size) - header_size;
  StoredTensors tensors;
  try {
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") {
        continue;
      }
      StoredTensor tensor;
      tensor.dtype = entry.at("dtype");
      tensor.sizes = entry.at("shape").get<std::vector<int64_t>>();
      const uint64_t begin = entry.at("data_offsets").at(0);
      const uint64_t end = entry.at("data_offsets").at(1);
      if (begin > end || end > data_size) {
        return std::nullopt;
      }
      auto values = decode_numbers(tensor.dtype, data + begin, end - begin);
      if (!values) {
        return std::nullopt;
      }
      tensor.values = std::move(*values);
      tensors[name] = std::move(tensor);
    }
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return tensors;
}

} // namespace accel::verify
