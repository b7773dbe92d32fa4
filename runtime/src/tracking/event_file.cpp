#include "event_file.h"

#include "crc32c.h"
#include "protobuf.h"

#include <atomic>

#include <unistd.h>

namespace accel::detail {
namespace {

/// Field numbers of tensorboard/compat/proto/{event,summary,tensor}.proto.
enum Event { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum Summary { kValue = 1 };
enum Value { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum SummaryMetadata { kPluginData = 1 };
enum PluginData { kPluginName = 1 };
enum Tensor { kDtype = 1, kTensorShape = 2, kStringVal = 8 };
enum TensorShape { kDim = 2 };
enum Dim { kSize = 1 };
/// DataType.
constexpr uint64_t kDtString = 7;

std::string new_path(const std::string& directory) {
  static std::atomic<int> counter{0};
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return directory + "/events.out.tfevents." +
         std::to_string(static_cast<int64_t>(now())) + "." + host + "." +
         std::to_string(::getpid()) + "." + std::to_string(counter++);
}

std::string little_endian(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return bytes;
}

} // namespace

std::string scalar_value(const std::string& tag, float value) {
  return ProtoMessage().bytes(kTag, tag).fixed32(kSimpleValue, value).str();
}

std::string text_value(const std::string& tag, const std::string& text) {
  const auto metadata = ProtoMessage().message(
      kPluginData, ProtoMessage().bytes(kPluginName, "text"));
  const auto shape =
      ProtoMessage().message(kDim, ProtoMessage().varint(kSize, 1));
  const auto tensor = ProtoMessage()
                          .varint(kDtype, kDtString)
                          .message(kTensorShape, shape)
                          .bytes(kStringVal, text);
  return ProtoMessage()
      .bytes(kTag, tag + "/text_summary")
      .message(kTensor, tensor)
      .message(kMetadata, metadata)
      .str();
}

EventFile::EventFile(const std::string& directory)
    : file_(new_path(directory)) {
  write_record(ProtoMessage()
                   .fixed64(kWallTime, now())
                   .bytes(kFileVersion, "brain.Event:2")
                   .str());
}

void EventFile::write(const std::vector<std::string>& values, int64_t step) {
  ProtoMessage summary;
  for (const auto& value : values) {
    summary.bytes(kValue, value);
  }
  write_record(ProtoMessage()
                   .fixed64(kWallTime, now())
                   .varint(kStep, static_cast<uint64_t>(step))
                   .message(kSummary, summary)
                   .str());
}

void EventFile::write_record(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  file_.append(
      length + little_endian(masked_crc32c(length), 4) + event +
      little_endian(masked_crc32c(event), 4));
}

} // namespace accel::detail
