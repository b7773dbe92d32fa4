#include "checkpoint/load_plan.h"

#include "checkpoint/blocks.h"
#include "checkpoint/file_pieces.h"
#include "checkpoint/files.h"
#include "checkpoint/safetensors_read.h"
#include "checkpoint/safetensors_write.h"
#include "checkpoint/threads.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <sstream>
#include <unordered_map>

namespace accel::checkpoint {

namespace {

/// "  'a'\n  'b'\n" and how many more there are.
std::string listed(const std::vector<std::string>& lines) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kMost; ++i) {
    text += "\n  " + lines[i];
  }
  if (lines.size() > kMost) {
    text += "\n  … and " + std::to_string(lines.size() - kMost) + " more";
  }
  return text;
}

std::string describe(at::ScalarType dtype, at::IntArrayRef shape) {
  std::ostringstream text;
  text << dtype << " " << shape;
  return text.str();
}

std::vector<std::string> all_in_quotes(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const auto& name : names) {
    result.push_back(in_quotes(name));
  }
  return result;
}

/// NaNs are equal to themselves.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 ||
          std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// The names of one and the same tensor.
struct Group {
  at::Tensor tensor;
  std::vector<std::string> names;
  std::optional<TensorPiece> piece;
};

std::vector<Group> group_by_tensor(
    const StateDict& target,
    const PieceOf& piece_of) {
  std::vector<Group> groups;
  std::unordered_multimap<const void*, size_t> by_data;
  for (const auto& item : target) {
    const at::Tensor& tensor = item.value();
    auto piece = piece_of ? piece_of(tensor) : std::nullopt;
    const bool divided = distributed::is_distributed(tensor);
    const void* data = !divided && tensor.has_storage() && tensor.numel() > 0
                           ? tensor.const_data_ptr()
                           : tensor.unsafeGetTensorImpl();
    const auto [begin, end] = by_data.equal_range(data);
    auto found = begin;
    while (found != end &&
           !(divided ? groups[found->second].tensor.is_same(tensor)
                   : same_tensor(groups[found->second].tensor, tensor))) {
      ++found;
    }
    if (found != end) {
      groups[found->second].names.push_back(item.key());
    } else {
      by_data.emplace(data, groups.size());
      groups.push_back({tensor, {item.key()}, std::move(piece)});
    }
  }
  return groups;
}

} // namespace

at::Tensor box_of(
    const at::Tensor& tensor,
    at::IntArrayRef offset,
    at::IntArrayRef sizes) {
  at::Tensor box = tensor;
  for (size_t i = 0; i < sizes.size(); ++i) {
    box = box.narrow(static_cast<int64_t>(i), offset[i], sizes[i]);
  }
  return box;
}

PieceOf& pieces_to_load() {
  static PieceOf pieces;
  return pieces;
}

void copy_values(at::Tensor& to, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  if (can_be_read_into(to) && can_be_read_into(from) &&
      to.scalar_type() == from.scalar_type()) {
    copy_mapped(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    if (!to.is_inference()) {
      to.unsafeGetTensorImpl()->bump_version();
    }
  } else {
    to.copy_(from);
  }
}

void copy_piece(
    const TensorSource& source,
    const TensorPiece& piece,
    at::Tensor& values) {
  if (piece.blocks.empty()) {
    source.copy_box(values, piece.offset);
    return;
  }
  const at::NoGradGuard no_grad;
  for (const auto& box :
       block_boxes(source.shape, values.sizes(), piece.offset, piece.blocks)) {
    at::Tensor part = box_of(values, box.within, box.sizes);
    source.copy_box(part, box.offset);
  }
}

void add_sources(TensorSources& sources, const SafetensorsFile& file) {
  for (const auto& info : file.tensors()) {
    const auto [position, inserted] = sources.emplace(
        info.name,
        TensorSource{
            info.dtype,
            info.shape,
            [file, name = info.name] { return file.map(name); },
            [file, name = info.name](at::Tensor& destination) {
              file.read_into(name, destination);
            },
            [file, name = info.name, shape = info.shape](
                at::Tensor& destination, at::IntArrayRef offset) {
              if (destination.sizes() == at::IntArrayRef(shape)) {
                file.read_into(name, destination);
                return;
              }
              copy_values(
                  destination,
                  box_of(file.map(name), offset, destination.sizes()));
            },
            /*in_file=*/true});
    TORCH_CHECK(
        inserted,
        "Tensor ",
        in_quotes(info.name),
        " is in ",
        in_quotes(file.path()),
        " and in another file of the same model");
  }
}

void add_sources(TensorSources& sources, const StateDict& tensors) {
  for (const auto& item : tensors) {
    const at::Tensor tensor = item.value();
    TORCH_CHECK(
        tensor.defined(), "Tensor ", in_quotes(item.key()), " is undefined");
    sources.emplace(
        item.key(),
        TensorSource{
            tensor.scalar_type(),
            tensor.sizes().vec(),
            [tensor] { return tensor; },
            [tensor](at::Tensor& destination) { destination.copy_(tensor); },
            [tensor](at::Tensor& destination, at::IntArrayRef offset) {
              copy_values(
                  destination, box_of(tensor, offset, destination.sizes()));
            }});
  }
}

LoadPlan::LoadPlan(
    StateDict target,
    TensorSources sources,
    const LoadOptions& options,
    const std::string& what,
    const PieceOf& piece_of) {
  std::vector<std::string> different;
  for (auto& group : group_by_tensor(target, piece_of)) {
    const TensorSource* chosen = nullptr;
    std::string chosen_name;
    std::vector<std::string> absent;
    for (const auto& name : group.names) {
      const auto found = sources.find(name);
      if (found == sources.end()) {
        absent.push_back(name);
        continue;
      }
      const TensorSource& source = found->second;
      if (at::IntArrayRef(source.shape) != group.tensor.sizes()) {
        different.push_back(
            in_quotes(name) + ": the module's is " +
            describe(group.tensor.scalar_type(), group.tensor.sizes()) +
            ", the loaded one " + describe(source.dtype, source.shape));
      } else if (
          source.dtype != group.tensor.scalar_type() &&
          !options.convert_dtype()) {
        different.push_back(
            in_quotes(name) + ": the module's is " +
            describe(group.tensor.scalar_type(), group.tensor.sizes()) +
            ", the loaded one " + describe(source.dtype, source.shape) +
            " (load_model with LoadOptions().convert_dtype(true) converts; for load_state "
            "the module must have this dtype)");
      } else if (!chosen) {
        chosen = &source;
        chosen_name = name;
      } else if (
          source.dtype != chosen->dtype ||
          !same_bytes(source.get(), chosen->get())) {
        different.push_back(
            in_quotes(name) + " and " + in_quotes(chosen_name) +
            ": one tensor in the module (tied), loaded with different values");
      }
    }
    if (absent.size() == group.names.size()) {
      incompatible_.missing.insert(
          incompatible_.missing.end(), absent.begin(), absent.end());
    }
    if (chosen) {
      copies_.push_back({group.tensor, *chosen, std::move(group.piece)});
    }
  }
  for (const auto& source : sources) {
    if (!target.contains(source.first)) {
      incompatible_.unexpected.push_back(source.first);
    }
  }

  std::string problems;
  if (options.strict() && !incompatible_.missing.empty()) {
    problems += "\nMissing:" + listed(all_in_quotes(incompatible_.missing));
  }
  if (options.strict() && !incompatible_.unexpected.empty()) {
    problems +=
        "\nUnexpected:" + listed(all_in_quotes(incompatible_.unexpected));
  }
  if (!different.empty()) {
    problems += "\nDifferent:" + listed(different);
  }
  TORCH_CHECK(
      problems.empty(),
      what,
      " does not fit the module; nothing was loaded.",
      problems);
}

void LoadPlan::apply() {
  const at::NoGradGuard no_grad;
  // What comes out of files as it is is read by several threads; the rest needs
  // LibTorch's operators.
  std::vector<size_t> read;
  uint64_t bytes = 0;
  for (size_t i = 0; i < copies_.size(); ++i) {
    auto& [tensor, source, piece] = copies_[i];
    if (piece) {
      at::Tensor& values = piece->values;
      if (source.dtype != values.scalar_type()) {
        auto other = at::empty(values.sizes(), values.options().dtype(source.dtype));
        copy_piece(source, *piece, other);
        values.copy_(other);
      } else if (can_be_read_into(values)) {
        read.push_back(i);
        bytes += values.nbytes();
      } else {
        copy_piece(source, *piece, values);
      }
      tensor.unsafeGetTensorImpl()->bump_version();
    } else if (
        source.dtype != tensor.scalar_type() ||
        distributed::is_distributed(tensor)) {
      tensor.copy_(source.get());
    } else if (source.in_file && can_be_read_into(tensor)) {
      read.push_back(i);
      bytes += tensor.nbytes();
    } else {
      source.copy_into(tensor);
    }
  }
  on_threads(
      read.size(),
      copying_threads(bytes),
      [&](size_t i) {
        auto& [tensor, source, piece] = copies_[read[i]];
        if (piece) {
          copy_piece(source, *piece, piece->values);
        } else {
          source.copy_into(tensor);
        }
      });
}

} // namespace accel::checkpoint
