#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace torch::optim {
class Optimizer;
}

namespace accel::parallel {

/// Puts tensors' memory into files that are mapped: as the system needs memory it
/// writes their pages out and reads them again. The files have no names, and are gone
/// with their tensors.
class FileOffload {
 public:
  /// Throws where no file can be made in `folder`.
  explicit FileOffload(std::string folder);

  /// The same values in a file, of a tensor on the CPU; of a distributed one this
  /// process's part, in place. Leaves tensors that lie there already, and those whose
  /// memory somebody else shares, who would not see what is written behind this. Throws
  /// where the disk is full.
  void move(at::Tensor& tensor) const;

  /// Before a step: what Adam and AdamW are about to keep is made in files, so that it
  /// never is in memory all at once.
  void make_states(torch::optim::Optimizer& optimizer) const;

  /// Behind a step: moves what the optimizer keeps.
  void move_states(torch::optim::Optimizer& optimizer) const;

 private:
  at::Tensor in_file(const at::Tensor& tensor) const;

  std::string folder_;
};

} // namespace accel::parallel
