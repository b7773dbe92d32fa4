#include "checkpoint/python_archive.h"

#include "checkpoint/files.h"
#include "checkpoint/pickle_scan.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace accel::checkpoint {

namespace {

/// One more than the last byte of its storage that a tensor reaches.
uint64_t end_of(const at::Tensor& tensor, const std::string& what) {
  uint64_t elements = 1;
  const auto add = [&](int64_t count, int64_t stride) {
    TORCH_CHECK(
        count >= 0 && stride >= 0 &&
            (count == 0 || stride == 0 ||
             static_cast<uint64_t>(count) <=
                 (static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) -
                  elements) /
                     static_cast<uint64_t>(stride)),
        what,
        " has a tensor of shape ",
        tensor.sizes(),
        " with strides ",
        tensor.strides(),
        ", which cannot be");
    elements += static_cast<uint64_t>(count) * static_cast<uint64_t>(stride);
  };
  add(tensor.storage_offset(), 1);
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    add(tensor.size(i) - 1, tensor.stride(i));
  }
  constexpr uint64_t kLargestElement = 16;
  TORCH_CHECK(
      elements <= std::numeric_limits<int64_t>::max() / kLargestElement,
      what,
      " has a tensor that ends at element ",
      elements);
  return elements * tensor.element_size();
}

} // namespace

PythonArchive::PythonArchive(const std::string& path, std::string what)
    : what_(std::move(what)) {
  const uint64_t file_size = InputFile(path).size();
  caffe2::serialize::PyTorchStreamReader reader(path);
  const auto member = [&](const std::string& name) {
    // Nothing in such a file is compressed.
    TORCH_CHECK(
        reader.getRecordSize(name) <= file_size,
        what_,
        ": its member ",
        in_quotes(name),
        " says that it has ",
        reader.getRecordSize(name),
        " bytes, but the whole file has only ",
        file_size,
        ". It is damaged.");
    return reader.getRecord(name);
  };
  if (reader.hasRecord("byteorder")) {
    const auto order = member("byteorder");
    const std::string text(
        static_cast<const char*>(std::get<0>(order).get()), std::get<1>(order));
    TORCH_CHECK(
        text == "little",
        what_,
        " was written with the byte order ",
        in_quotes(text),
        "; only 'little' can be read");
  }
  const auto pickle = member("data.pkl");
  const char* bytes = static_cast<const char*>(std::get<0>(pickle).get());
  const size_t size = std::get<1>(pickle);
  check_pickle_lengths(bytes, size, what_);

  size_t position = 0;
  torch::jit::Unpickler unpickler(
      [&](char* buffer, size_t wanted) {
        const size_t part = std::min(wanted, size - position);
        std::memcpy(buffer, bytes + position, part);
        position += part;
        return part;
      },
      /*type_resolver=*/nullptr,
      /*obj_loader=*/nullptr,
      [&](const std::string& name) {
        auto record = member("data/" + name);
        members_[std::get<0>(record).get()] = std::get<1>(record);
        return std::move(std::get<0>(record));
      },
      at::Device(at::kCPU));
  unpickler.set_version(reader.version());
  value_ = unpickler.parse_ivalue();
}

at::Tensor PythonArchive::tensor(const c10::IValue& value) const {
  const at::Tensor tensor = value.toTensor();
  TORCH_CHECK(
      tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu() &&
          !tensor.is_quantized(),
      what_,
      " has a tensor that is not an ordinary one");
  // Not `numel()`, which overflows where the sizes are made up.
  const auto sizes = tensor.sizes();
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
    return tensor;
  }
  const auto found = members_.find(tensor.storage().data());
  const uint64_t there = found == members_.end() ? 0 : found->second;
  const uint64_t end = end_of(tensor, what_);
  TORCH_CHECK(
      end <= there,
      what_,
      " has a tensor of shape ",
      tensor.sizes(),
      " that ends at byte ",
      end,
      " of a member that has only ",
      there,
      " bytes. The file is damaged.");
  return tensor;
}

} // namespace accel::checkpoint
