#pragma once

#include <accel/checkpoint/state_dict.h>

#include <functional>
#include <map>
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
  /// `copy_into` reads a file, and does nothing else where the tensor can be
  /// read into (safetensors_read.h).
  bool in_file = false;
};
using TensorSources = std::map<std::string, TensorSource>;

/// All tensors of a file, or of a dictionary, added to `sources`. Both live as
/// long as the sources do.
void add_sources(TensorSources& sources, const SafetensorsFile& file);
void add_sources(TensorSources& sources, const StateDict& tensors);

/// A comparison that went well: what will be copied where.
class LoadPlan {
 public:
  /// `what` names the source in messages.
  LoadPlan(
      StateDict target,
      TensorSources sources,
      const LoadOptions& options,
      const std::string& what);

  const IncompatibleKeys& incompatible() const {
    return incompatible_;
  }
  void apply();

 private:
  std::vector<std::pair<at::Tensor, TensorSource>> copies_;
  IncompatibleKeys incompatible_;
};

} // namespace accel::checkpoint
