#pragma once

#include <accel/detail/communicator.h>

#include "core/guarded_operation.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace accel::detail {

/// One channel over Gloo: tensors in the host's memory.
class GlooCommunicator : public Communicator {
 public:
  /// Connects; every process must call it. Throws what c10d throws.
  GlooCommunicator(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
      GuardedOperations operations);
  ~GlooCommunicator() override;

  int64_t rank() const override {
    return operations_.rank;
  }
  int64_t size() const override {
    return operations_.size;
  }
  void all_reduce(at::Tensor& tensor) override;
  Waiter all_reduce_async(at::Tensor& tensor) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void broadcast(at::Tensor& tensor, int64_t source) override;
  void barrier() override;

  /// Ends the connections, so that what waits on any process throws.
  void cut();

 private:
  class CuttableGloo;

  GuardedOperations operations_;
  c10::intrusive_ptr<CuttableGloo> group_;
};

/// Throws where `source` is no process of `size`.
void check_source(int64_t source, int64_t size);

} // namespace accel::detail
