#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>

namespace torch::optim {
class Optimizer;
}

namespace accel::parallel {

/// Puts tensors' memory where there is more room than where the processes compute.
///
/// Where they compute on CPUs, into files that are mapped: as the system needs memory it
/// writes their pages out and reads them again. The files have no names, and are gone with
/// their tensors.
///
/// Where they compute on GPUs, into memory of the host, pinned or in such files, while
/// nobody computes with them: parts of distributed tensors come back by themselves
/// (distributed/on_host.h), and what an optimizer keeps for a step of its parameter. All is
/// computed on the GPU: the numbers are those without.
class Offload {
 public:
  /// `device`: where the processes compute. `folder`: for the files; empty: memory of the
  /// host. Throws where no file can be made there.
  Offload(c10::Device device, std::string folder);

  /// Moves a tensor; of a distributed one this process's part, in place. Leaves small ones,
  /// those that are there already, and those whose memory somebody else shares, who would
  /// not see what is written behind this. Throws where the disk is full.
  void move(at::Tensor& tensor) const;

  /// Calls `update`, a step of the optimizer. On GPUs once for each few parameters, which
  /// alone have gradients then, if the class is one of LibTorch's that step each parameter
  /// for itself: what it keeps for these is on the GPU meanwhile. `at_once`: only one call
  /// will do; it computes the gradients itself. Returns what the last one has returned.
  at::Tensor step(
      torch::optim::Optimizer& optimizer,
      bool at_once,
      const std::function<at::Tensor()>& update) const;

 private:
  bool on_cpu() const {
    return device_.is_cpu();
  }
  bool is_movable(const at::Tensor& tensor) const;
  /// Memory beside the device for a tensor of these sizes and strides, without values.
  at::Tensor memory_for(const at::Tensor& like) const;
  at::Tensor in_file(const at::Tensor& like) const;
  void move_states(torch::optim::Optimizer& optimizer) const;

  c10::Device device_;
  std::string folder_;
};

} // namespace accel::parallel
