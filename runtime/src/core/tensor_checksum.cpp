#include "core/tensor_checksum.h"

#include "checkpoint/xxh64.h"

#include <ATen/ATen.h>

namespace accel::detail {

std::vector<at::Tensor> components(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return {tensor._indices(), tensor._values()};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default:
      return {};
  }
}

std::optional<uint64_t> checksum_of(const at::Tensor& tensor) {
  if (const auto parts = components(tensor.detach()); !parts.empty()) {
    uint64_t all = 0;
    for (const auto& part : parts) {
      all = all * 31 + *checksum_of(part);
    }
    return all;
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    return std::nullopt;
  }
  const auto content =
      tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  return checkpoint::xxh64(content.const_data_ptr(), content.nbytes());
}

} // namespace accel::detail
