#pragma once

#include <accel/checkpoint/pieces.h>
#include <accel/checkpoint/state_dict.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::checkpoint {

/// Values that can be loaded: in memory or in a file.
struct TensorSource {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  /// For comparison and conversion.
  std::function<at::Tensor()> get;
  /// Into a tensor of the same shape and dtype.
  std::function<void(at::Tensor&)> copy_into;
  /// The box at `offset` that has the tensor's sizes, into one of the same dtype.
  std::function<void(at::Tensor&, at::IntArrayRef offset)> copy_box;
  /// `copy_into` reads a file, and does nothing else where the tensor can be
  /// read into (safetensors_read.h).
  bool in_file = false;
};
using TensorSources = std::map<std::string, TensorSource>;

/// Into `values` of the source's dtype, what a piece like this one has of it.
void copy_piece(
    const TensorSource& source,
    const TensorPiece& piece,
    at::Tensor& values);

/// All tensors of a file, or of a dictionary, added to `sources`. Both live as
/// long as the sources do.
void add_sources(TensorSources& sources, const SafetensorsFile& file);
void add_sources(TensorSources& sources, const StateDict& tensors);

/// The box of a tensor that begins at `offset`: a view.
at::Tensor box_of(
    const at::Tensor& tensor,
    at::IntArrayRef offset,
    at::IntArrayRef sizes);

/// `to.copy_(from)`, for values that may be those of a file's mapping. On any
/// thread where both are contiguous and in host memory.
void copy_values(at::Tensor& to, const at::Tensor& from);

/// What `load_model` asks for parts that values may be written into: the
/// Accelerator's, while one lives that divides parameters; else empty.
PieceOf& pieces_to_load();

/// A comparison that went well: what will be copied where.
class LoadPlan {
 public:
  /// `what` names the source in messages. Of tensors that `piece_of` says are
  /// divided, this process's part is loaded.
  LoadPlan(
      StateDict target,
      TensorSources sources,
      const LoadOptions& options,
      const std::string& what,
      const PieceOf& piece_of = nullptr);

  const IncompatibleKeys& incompatible() const {
    return incompatible_;
  }
  void apply();

 private:
  struct Copy {
    at::Tensor tensor;
    TensorSource source;
    std::optional<TensorPiece> piece;
  };

  std::vector<Copy> copies_;
  IncompatibleKeys incompatible_;
};

} // namespace accel::checkpoint
