#pragma once

// Reads TensorBoard event files, written from the formats' descriptions and
// with other means than the writer: the checksum bit by bit from the
// unreflected polynomial, the messages into a generic tree of fields.

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

inline uint32_t reflect(uint32_t value, int bits) {
  uint32_t result = 0;
  for (int i = 0; i < bits; ++i) {
    result |= (value >> i & 1u) << (bits - 1 - i);
  }
  return result;
}

inline uint32_t castagnoli(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const unsigned char byte : bytes) {
    crc ^= reflect(byte, 8) << 24;
    for (int i = 0; i < 8; ++i) {
      crc = (crc & 0x80000000u) ? crc << 1 ^ 0x1EDC6F41u : crc << 1;
    }
  }
  return reflect(crc, 32) ^ 0xFFFFFFFFu;
}

template <typename T>
T number_at(const std::string& bytes, size_t position) {
  if (position + sizeof(T) > bytes.size()) {
    throw std::runtime_error("file ends inside a number");
  }
  T value;
  std::memcpy(&value, bytes.data() + position, sizeof value);
  return value;
}

/// The records of a TFRecord file; throws when a checksum is wrong.
inline std::vector<std::string> records(const std::string& file) {
  const auto unmask = [](uint32_t masked) {
    const uint32_t rotated = masked - 0xA282EAD8u;
    return rotated << 15 | rotated >> 17;
  };
  std::vector<std::string> result;
  for (size_t position = 0; position < file.size();) {
    const auto length = number_at<uint64_t>(file, position);
    if (unmask(number_at<uint32_t>(file, position + 8)) !=
        castagnoli(file.substr(position, 8))) {
      throw std::runtime_error("checksum of a length");
    }
    const std::string data = file.substr(position + 12, length);
    if (data.size() != length ||
        unmask(number_at<uint32_t>(file, position + 12 + length)) !=
            castagnoli(data)) {
      throw std::runtime_error("checksum of a record");
    }
    result.push_back(data);
    position += 12 + length + 4;
  }
  return result;
}

/// A protobuf message: per field number, its values as bytes (varints as the
/// eight bytes of the number).
struct Message {
  std::map<int, std::vector<std::string>> fields;

  explicit Message(const std::string& bytes) {
    for (size_t position = 0; position < bytes.size();) {
      const uint64_t key = varint(bytes, position);
      std::string value;
      switch (key & 7) {
        case 0: {
          const uint64_t number = varint(bytes, position);
          value.assign(reinterpret_cast<const char*>(&number), 8);
          break;
        }
        case 1:
          value = take(bytes, position, 8);
          break;
        case 2: {
          const uint64_t length = varint(bytes, position);
          value = take(bytes, position, length);
          break;
        }
        case 5:
          value = take(bytes, position, 4);
          break;
        default:
          throw std::runtime_error("wire type");
      }
      fields[static_cast<int>(key >> 3)].push_back(value);
    }
  }

  bool has(int field) const {
    return fields.count(field) != 0;
  }
  const std::string& bytes(int field) const {
    return fields.at(field).at(0);
  }
  Message message(int field) const {
    return Message(bytes(field));
  }
  template <typename T>
  T number(int field) const {
    return number_at<T>(bytes(field), 0);
  }

 private:
  static uint64_t varint(const std::string& bytes, size_t& position) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(position++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) {
        return value;
      }
    }
  }
  static std::string take(
      const std::string& bytes, size_t& position, uint64_t length) {
    if (position + length > bytes.size()) {
      throw std::runtime_error("message ends inside a field");
    }
    position += length;
    return bytes.substr(position - length, length);
  }
};

} // namespace test
