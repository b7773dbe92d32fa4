// Safetensors files, as the runtime reads them.

#include "fuzz.h"

#include <accel/checkpoint/safetensors.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstring>

namespace {

using accel::checkpoint::SafetensorsFile;
using accel::fuzz::require;

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      (a.nbytes() == 0 ||
       std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

/// Looks at every byte of every tensor.
void read_all(const SafetensorsFile& file, uint64_t file_size) {
  uint64_t bytes = 0;
  for (const auto& info : file.tensors()) {
    require(
        info.offset + info.size <= file_size && info.offset + info.size >= info.offset,
        "a tensor lies within its file");
    bytes += info.size;
    require(file.find(info.name) != nullptr, "a tensor is found by its name");
    const at::Tensor copy = file.read(info.name);
    require(copy.nbytes() == info.size, "a tensor has the bytes that were checked");
    require(
        same_bytes(copy, file.map(info.name)),
        "mapped and copied values are the same");
  }
  require(bytes < file_size, "tensors do not overlap");
}

} // namespace

ACCEL_FUZZ_TARGET(safetensors) {
  const auto path = accel::fuzz::file_with("file.safetensors", input);
  accel::fuzz::refused<c10::Error>([&] {
    const SafetensorsFile file(path);
    read_all(file, input.size());
    // What we read we write, and read again.
    const auto tensors = accel::checkpoint::load_safetensors(path);
    const auto copy = (accel::fuzz::scratch() / "copy.safetensors").string();
    accel::checkpoint::save_safetensors(tensors, copy, file.metadata());
    const auto again = accel::checkpoint::load_safetensors(copy);
    require(again.size() == tensors.size(), "as many tensors as before");
    for (const auto& item : tensors) {
      require(same_bytes(item.value(), again[item.key()]), "the same values");
    }
  });
}
