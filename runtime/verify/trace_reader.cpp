#include "trace_reader.h"
#include "read_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace accel::verify {
namespace {

TracedTensor read_tensor(Decoder& decoder) {
  TracedTensor tensor;
  tensor.id = decoder.get<uint32_t>();
  tensor.kind = decoder.get<TensorKind>();
  tensor.dtype = decoder.get<Dtype>();
  tensor.name = decoder.get_text();
  const auto dimensions = decoder.get<uint32_t>();
  for (uint32_t i = 0; i < dimensions && decoder.ok(); ++i) {
    tensor.sizes.push_back(decoder.get<int64_t>());
  }
  tensor.initial = decoder.get<Fingerprint>();
  return tensor;
}

TracedBackwardCall read_backward(Decoder& decoder) {
  TracedBackwardCall call;
  call.loss = decoder.get<double>();
  call.dtype = decoder.get<Dtype>();
  call.flags = decoder.get<uint32_t>();
  call.rows = decoder.get<int64_t>();
  const auto count = decoder.get<uint32_t>();
  for (uint32_t i = 0; i < count && decoder.ok(); ++i) {
    const auto id = decoder.get<uint32_t>();
    const bool has_gradient = decoder.get<uint8_t>() != 0;
    TracedGradient traced;
    traced.before = decoder.get<Fingerprint>();
    const auto gradient = decoder.get<Fingerprint>();
    if (has_gradient) {
      traced.gradient = gradient;
    }
    call.parameters[id] = traced;
  }
  return call;
}

void add_record(Trace& trace, Record type, Decoder& decoder, const char* begin,
                const char* end) {
  switch (type) {
    case Record::kInfo: {
      const auto info = nlohmann::json::parse(begin, end);
      trace.rank = info.at("rank");
      trace.world_size = info.at("world_size");
      break;
    }
    case Record::kTensor:
      trace.tensors.push_back(read_tensor(decoder));
      break;
    case Record::kBackward:
      trace.backwards.push_back(read_backward(decoder));
      break;
    case Record::kFinal: {
      const auto id = decoder.get<uint32_t>();
      const auto value = decoder.get<Fingerprint>();
      for (auto& tensor : trace.tensors) {
        if (tensor.id == id) {
          tensor.final = value;
        }
      }
      break;
    }
    case Record::kNote:
      trace.notes.emplace_back(begin, end);
      break;
    case Record::kEnd:
      trace.complete = true;
      break;
  }
}

} // namespace

int64_t TracedTensor::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return count;
}

std::string TracedTensor::describe() const {
  std::string text = name.empty() ? "tensor " + std::to_string(id) : name;
  text += " [";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

const TracedTensor* Trace::find(uint32_t id) const {
  for (const auto& tensor : tensors) {
    if (tensor.id == id) {
      return &tensor;
    }
  }
  return nullptr;
}

Trace read_trace(const std::string& path) {
  if (!std::ifstream(path)) {
    throw std::runtime_error(path + " cannot be read");
  }
  const std::string bytes = read_file(path);
  const std::string magic(kTraceMagic, sizeof(kTraceMagic));
  if (bytes.compare(0, magic.size(), magic) != 0) {
    throw std::runtime_error(path + " is no trace of this version of accel");
  }
  Trace trace;
  size_t at = magic.size();
  while (at + 1 + sizeof(uint64_t) <= bytes.size()) {
    const auto type = static_cast<Record>(bytes[at]);
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at + 1, sizeof(size));
    at += 1 + sizeof(size);
    if (size > bytes.size() - at) {
      break; // cut off
    }
    const char* begin = bytes.data() + at;
    Decoder decoder(begin, begin + size);
    add_record(trace, type, decoder, begin, begin + size);
    if (!decoder.ok()) {
      throw std::runtime_error(path + " is damaged");
    }
    at += size;
  }
  return trace;
}

} // namespace accel::verify
