#include "tensor_file.h"

#include "measure.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <fstream>
#include <sstream>

namespace accel::verify {
namespace {

/// Null for dtypes that the format does not know.
const char* dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kInt:
      return "I32";
    case at::kShort:
      return "I16";
    case at::kChar:
      return "I8";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    default:
      return nullptr;
  }
}

} // namespace

void write_tensor_file(
    const std::string& path, const std::vector<Registry::Entry*>& entries) {
  const c10::NoGradGuard no_grad;
  std::ostringstream header;
  std::vector<at::Tensor> tensors;
  uint64_t offset = 0;
  header << "{";
  for (const auto* entry : entries) {
    auto tensor = whole_of(entry->tensor).detach();
    if (tensor.is_complex()) {
      tensor = at::view_as_real(tensor);
    }
    const char* name = dtype_name(tensor.scalar_type());
    if (name == nullptr || tensor.layout() != at::kStrided) {
      continue; // its fingerprint is compared
    }
    tensor = tensor.cpu().contiguous();
    header << (tensors.empty() ? "" : ",") << "\"" << entry->id
           << "\":{\"dtype\":\"" << name << "\",\"shape\":[";
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      header << (i == 0 ? "" : ",") << tensor.size(i);
    }
    header << "],\"data_offsets\":[" << offset << ",";
    offset += tensor.nbytes();
    header << offset << "]}";
    tensors.push_back(tensor);
  }
  header << "}";
  std::string text = header.str();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file.write(text.data(), static_cast<std::streamsize>(size));
  for (const auto& tensor : tensors) {
    file.write(
        static_cast<const char*>(tensor.const_data_ptr()),
        static_cast<std::streamsize>(tensor.nbytes()));
  }
  file.close();
  TORCH_CHECK(file, path, " cannot be written");
}

} // namespace accel::verify
