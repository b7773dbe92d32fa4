#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace accel::detail {

/// Encodes one protobuf message, field by field. Only what TensorBoard's
/// messages need; fields with the default value may be left out.
class ProtoMessage {
 public:
  ProtoMessage& varint(int field, uint64_t value) {
    key(field, 0);
    raw_varint(value);
    return *this;
  }
  ProtoMessage& fixed64(int field, double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    key(field, 1);
    little_endian(bits, 8);
    return *this;
  }
  ProtoMessage& fixed32(int field, float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    key(field, 5);
    little_endian(bits, 4);
    return *this;
  }
  ProtoMessage& bytes(int field, const std::string& value) {
    key(field, 2);
    raw_varint(value.size());
    encoded_ += value;
    return *this;
  }
  ProtoMessage& message(int field, const ProtoMessage& value) {
    return bytes(field, value.encoded_);
  }

  const std::string& str() const {
    return encoded_;
  }

 private:
  void key(int field, int wire_type) {
    raw_varint(static_cast<uint64_t>(field) << 3 | wire_type);
  }
  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      encoded_ += static_cast<char>(0x80 | (value & 0x7F));
    }
    encoded_ += static_cast<char>(value);
  }
  void little_endian(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      encoded_ += static_cast<char>(value >> (8 * i) & 0xFF);
    }
  }

  std::string encoded_;
};

} // namespace accel::detail
