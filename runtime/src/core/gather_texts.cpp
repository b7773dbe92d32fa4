#include "core/gather_texts.h"

#include <ATen/ATen.h>

#include <cstring>

namespace accel::detail {

std::vector<std::string> gather_texts(
    Communicator& communicator, const std::string& text, int64_t most) {
  auto padded = at::zeros({most}, at::kByte);
  text.copy(
      reinterpret_cast<char*>(padded.mutable_data_ptr<uint8_t>()),
      static_cast<size_t>(most));
  std::vector<std::string> texts;
  for (const auto& one : communicator.all_gather(padded)) {
    const auto* begin = reinterpret_cast<const char*>(one.const_data_ptr<uint8_t>());
    texts.emplace_back(begin, ::strnlen(begin, static_cast<size_t>(most)));
  }
  return texts;
}

} // namespace accel::detail
