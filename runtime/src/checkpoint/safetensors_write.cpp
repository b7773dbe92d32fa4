#include "checkpoint/safetensors_write.h"

#include "checkpoint/safetensors_header.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

namespace accel::checkpoint {

namespace {

/// Of tensors that are given to the file in one call.
constexpr size_t kAtOnce = 64 << 20;

/// A JSON string; the format wants UTF-8 without escapes where none is needed.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    TORCH_CHECK(false, "The text ", in_quotes(text), " is not UTF-8");
  }
}

std::string header_of(
    const std::vector<const StateDict::Item*>& items,
    const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      header += header.back() == '{' ? "" : ",";
      header += json_string(key) + ":" + json_string(value);
    }
    header += "}";
  }
  uint64_t offset = 0;
  for (const auto* item : items) {
    const at::Tensor& tensor = item->value();
    const uint64_t end = offset + tensor.nbytes();
    header += header.size() == 1 ? "" : ",";
    header += json_string(item->key()) + ":{\"dtype\":\"" +
              dtype_name(tensor.scalar_type()) + "\",\"shape\":[";
    for (const int64_t size : tensor.sizes()) {
      header += header.back() == '[' ? "" : ",";
      header += std::to_string(size);
    }
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  TORCH_CHECK(
      header.size() <= kMaxHeaderSize,
      "The header would have ",
      header.size(),
      " bytes; readers take at most ",
      kMaxHeaderSize,
      ". Write several files.");
  return header;
}

/// The address range of a tensor that has elements.
struct Extent {
  const char* begin;
  const char* end;
  const StateDict::Item* item;
};

} // namespace

void check_writable(const std::string& name, const at::Tensor& tensor) {
  TORCH_CHECK(
      name != "__metadata__",
      "A tensor cannot have the name '__metadata__' in a safetensors file");
  const auto fail = [&](const auto& what) {
    TORCH_CHECK(
        false, "Tensor ", in_quotes(name), " cannot be written: it ", what);
  };
  if (!tensor.defined()) {
    fail("is undefined");
  }
  if (tensor.is_meta()) {
    fail("is on the meta device and has no values");
  }
  if (tensor.layout() != at::kStrided || tensor.is_nested()) {
    fail("is not dense; use to_dense()");
  }
  if (!dtype_name(tensor.scalar_type())) {
    fail(
        std::string("has the dtype ") + c10::toString(tensor.scalar_type()) +
        ", which the format does not have");
  }
}

bool same_tensor(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (a.numel() > 0 && !a.is_meta() && a.has_storage() && b.has_storage() &&
          a.device() == b.device() && a.dtype() == b.dtype() &&
          a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
          a.strides() == b.strides());
}

std::optional<std::pair<std::string, std::string>> find_overlap(
    const StateDict& tensors) {
  std::vector<Extent> extents;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        tensor.is_meta() || tensor.numel() == 0) {
      continue;
    }
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    extents.push_back(
        {begin, begin + (last + 1) * tensor.element_size(), &item});
  }
  // Devices have address spaces of their own, or share one without overlaps.
  std::stable_sort(
      extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
        const auto device = [](const Extent& extent) {
          const auto d = extent.item->value().device();
          return std::make_pair(static_cast<int>(d.type()), d.index());
        };
        return std::make_tuple(device(a), a.begin) <
               std::make_tuple(device(b), b.begin);
      });
  for (size_t i = 1; i < extents.size(); ++i) {
    // Up to here nothing overlaps, so the neighbour reaches furthest.
    if (extents[i].begin < extents[i - 1].end &&
        extents[i].item->value().device() ==
            extents[i - 1].item->value().device()) {
      return std::make_pair(extents[i - 1].item->key(), extents[i].item->key());
    }
  }
  return std::nullopt;
}

std::vector<const StateDict::Item*> file_order(const StateDict& tensors) {
  std::vector<const StateDict::Item*> items;
  for (const auto& item : tensors) {
    items.push_back(&item);
  }
  std::sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
    const int rank_a = dtype_rank(a->value().scalar_type());
    const int rank_b = dtype_rank(b->value().scalar_type());
    return rank_a != rank_b ? rank_a > rank_b : a->key() < b->key();
  });
  return items;
}

Digest write_safetensors(
    const StateDict& tensors,
    const std::string& path,
    const std::map<std::string, std::string>& metadata,
    bool sync,
    const PutTogether& put_together) {
  for (const auto& item : tensors) {
    check_writable(item.key(), item.value());
  }
  // Nobody can ask where divided ones lie; `divided_file` has looked at the parts.
  const auto overlap = put_together ? std::nullopt : find_overlap(tensors);
  if (overlap) {
    TORCH_CHECK(
        false,
        "Tensors ",
        in_quotes(overlap->first),
        " and ",
        in_quotes(overlap->second),
        " share memory, which a safetensors file cannot tell. Save tied "
        "weights once (without_shared) or clone() one of them.");
  }
  const auto items = file_order(tensors);
  const std::string header = header_of(items, metadata);
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) {
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  }
  OutputFile file(path, sync);
  file.write(length, sizeof(length));
  file.write(header.data(), header.size());
  const at::NoGradGuard no_grad;
  // Several at a time, so that the file has much to do at once; not all, so
  // that copies do not pile up.
  std::vector<at::Tensor> values;
  std::vector<ByteSpan> parts;
  size_t bytes = 0;
  for (const auto* item : items) {
    const at::Tensor whole =
        put_together ? put_together(item->value()) : item->value();
    values.push_back(
        whole.detach().cpu().resolve_conj().resolve_neg().contiguous());
    const at::Tensor& last = values.back();
    parts.push_back(
        {static_cast<const char*>(last.const_data_ptr()), last.nbytes()});
    bytes += last.nbytes();
    const bool assembled = !whole.is_same(item->value());
    if (bytes >= kAtOnce || assembled || item == items.back()) {
      file.write(parts);
      values.clear();
      parts.clear();
      bytes = 0;
    }
  }
  return file.finish();
}

void save_safetensors(
    const StateDict& tensors,
    const std::string& path,
    const std::map<std::string, std::string>& metadata) {
  const std::string temporary = temporary_path(path);
  try {
    write_safetensors(tensors, temporary, metadata);
    rename_path(temporary, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_directory(parent_path(path));
}

} // namespace accel::checkpoint
