#include "checkpoint/packed_files.h"

#include "checkpoint/files.h"
#include "checkpoint/json.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace accel::checkpoint {

std::string packed(const StateFiles& files) {
  Json json{{"texts", files.texts}, {"tensors", Json::object()}};
  for (const auto& [name, tensors, metadata] : files.tensors) {
    for (const auto& item : tensors) {
      TORCH_CHECK(
          item.value().scalar_type() == at::kByte && item.value().dim() == 1,
          in_quotes(item.key()),
          " is no row of bytes");
      const at::Tensor bytes = item.value().contiguous();
      const auto* data = bytes.const_data_ptr<uint8_t>();
      json["tensors"][name][item.key()] =
          Json::binary({data, data + bytes.numel()});
    }
  }
  const auto bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

void unpack(const std::string& text, StateFiles& files) {
  const Json json = Json::from_cbor(text);
  for (const auto& [name, tensors] : json["tensors"].items()) {
    StateDict dict;
    for (const auto& [key, value] : tensors.items()) {
      const auto& bytes = value.get_binary();
      auto tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
      std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<uint8_t>());
      dict.insert(key, std::move(tensor));
    }
    files.tensors.push_back({name, std::move(dict)});
  }
  for (const auto& entry : json["texts"]) {
    files.texts.emplace_back(entry[0], entry[1]);
  }
}

} // namespace accel::checkpoint
