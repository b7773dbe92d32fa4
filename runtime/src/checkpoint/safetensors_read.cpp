#include "checkpoint/safetensors_read.h"
#include "checkpoint/file_pieces.h"
#include "checkpoint/files.h"
#include "checkpoint/mapped_memory.h"
#include "checkpoint/safetensors_header.h"

#include <accel/checkpoint/safetensors.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace accel::checkpoint {

namespace {

/// A whole file, privately and writable.
MappedMemory map_file(const InputFile& file) {
  MappedMemory memory(
      file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  TORCH_CHECK(
      memory,
      "Cannot map ",
      in_quotes(file.path()),
      ": ",
      system_message(errno));
  advise_large_pages(memory);
  return memory;
}

} // namespace

class SafetensorsFile::Impl {
 public:
  explicit Impl(const std::string& path) : file_(path) {
    constexpr uint64_t kLengthSize = 8;
    TORCH_CHECK(
        file_.size() >= kLengthSize,
        in_quotes(path),
        " is not a safetensors file: it has only ",
        file_.size(),
        " bytes");
    unsigned char length[kLengthSize];
    file_.read(0, length, sizeof(length));
    uint64_t header_size = 0;
    for (int i = kLengthSize - 1; i >= 0; --i) {
      header_size = header_size << 8 | length[i];
    }
    TORCH_CHECK(
        header_size <= kMaxHeaderSize,
        in_quotes(path),
        " is not a safetensors file: its header would have ",
        header_size,
        " bytes (at most ",
        kMaxHeaderSize,
        ")");
    TORCH_CHECK(
        header_size <= file_.size() - kLengthSize,
        in_quotes(path),
        " is cut off: its header has ",
        header_size,
        " bytes, but the file only ",
        file_.size());
    std::string json(header_size, '\0');
    file_.read(kLengthSize, json.data(), json.size());
    header_ = parse_header(json, kLengthSize + header_size, file_.size(), path);
    for (const auto& tensor : header_.tensors) {
      by_name_.emplace(tensor.name, &tensor);
    }
  }

  const InputFile& file() const {
    return file_;
  }
  const SafetensorsHeader& header() const {
    return header_;
  }

  const TensorInfo* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  const TensorInfo& get(const std::string& name) const {
    const TensorInfo* info = find(name);
    TORCH_CHECK(
        info, in_quotes(file_.path()), " has no tensor ", in_quotes(name));
    return *info;
  }

  std::shared_ptr<MappedMemory> mapping() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Weak, so that the memory goes with the last tensor.
    auto mapping = mapping_.lock();
    if (!mapping) {
      mapping_ = mapping = std::make_shared<MappedMemory>(map_file(file_));
    }
    return mapping;
  }

  /// Any other byte in a bool is undefined behaviour for everyone who reads it.
  void check_values(const TensorInfo& info, const void* data) const {
    if (info.dtype != at::kBool) {
      return;
    }
    const auto* bytes = static_cast<const unsigned char*>(data);
    const auto* bad = std::find_if(
        bytes, bytes + info.size, [](unsigned char byte) { return byte > 1; });
    TORCH_CHECK(
        bad == bytes + info.size,
        in_quotes(file_.path()),
        ": tensor ",
        in_quotes(info.name),
        " is BOOL, but its element ",
        bad - bytes,
        " is ",
        static_cast<int>(*bad));
  }

  at::Tensor read(const TensorInfo& info) const {
    auto tensor = at::empty(info.shape, at::TensorOptions(info.dtype));
    read_bytes(info, tensor.mutable_data_ptr());
    return tensor;
  }

  void read_bytes(const TensorInfo& info, void* destination) const {
    if (info.dtype == at::kBool) {
      // Checked before it lands in memory that somebody takes for bools.
      std::vector<unsigned char> bytes(info.size);
      file_.read(info.offset, bytes.data(), info.size);
      check_values(info, bytes.data());
      std::copy(
          bytes.begin(), bytes.end(), static_cast<unsigned char*>(destination));
      return;
    }
    read_large(file_, info.offset, destination, info.size);
  }

 private:
  InputFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, const TensorInfo*> by_name_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<MappedMemory> mapping_;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : impl_(std::make_shared<Impl>(path)) {}

const std::string& SafetensorsFile::path() const {
  return impl_->file().path();
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header().metadata;
}

const std::vector<TensorInfo>& SafetensorsFile::tensors() const {
  return impl_->header().tensors;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  return impl_->find(name);
}

at::Tensor SafetensorsFile::map(const std::string& name) const {
  const TensorInfo& info = impl_->get(name);
  const uint64_t alignment = std::min<uint64_t>(
      c10::elementSize(info.dtype), alignof(std::max_align_t));
  if (info.size == 0 || info.offset % alignment != 0) {
    return impl_->read(info);
  }
  auto mapping = impl_->mapping();
  void* data = mapping->data() + info.offset;
  impl_->check_values(info, data);
  return at::from_blob(
      data, info.shape, [mapping](void*) {}, at::TensorOptions(info.dtype));
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  return impl_->read(impl_->get(name));
}

bool can_be_read_into(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() &&
         tensor.layout() == at::kStrided && !tensor.is_conj() &&
         !tensor.is_neg();
}

void SafetensorsFile::read_into(
    const std::string& name, at::Tensor& destination) const {
  const TensorInfo& info = impl_->get(name);
  TORCH_CHECK(
      destination.sizes() == at::IntArrayRef(info.shape) &&
          destination.scalar_type() == info.dtype,
      in_quotes(path()),
      ": tensor ",
      in_quotes(name),
      " is ",
      dtype_name(info.dtype),
      " ",
      at::IntArrayRef(info.shape),
      ", but the destination is ",
      destination.scalar_type(),
      " ",
      destination.sizes());
  const at::NoGradGuard no_grad;
  if (can_be_read_into(destination)) {
    impl_->read_bytes(info, destination.mutable_data_ptr());
    // Autograd must notice, as it does with `copy_`.
    if (!destination.is_inference()) {
      destination.unsafeGetTensorImpl()->bump_version();
    }
  } else {
    destination.copy_(impl_->read(info));
  }
}

StateDict load_safetensors(const std::string& path, bool copy) {
  const SafetensorsFile file(path);
  StateDict tensors;
  tensors.reserve(file.tensors().size());
  for (const auto& info : file.tensors()) {
    tensors.insert(
        info.name, copy ? file.read(info.name) : file.map(info.name));
  }
  return tensors;
}

} // namespace accel::checkpoint
