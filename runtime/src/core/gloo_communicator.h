#pragma once

#include <accel/detail/communicator.h>

#include "core/guarded_operation.h"
#include "core/shared_sum.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <deque>
#include <mutex>

namespace accel::detail {

/// One channel over Gloo: tensors in the host's memory. Between processes of
/// one host sums can go through memory that they share.
class GlooCommunicator : public Communicator {
 public:
  /// Connects; every process must call it. Throws what c10d throws.
  GlooCommunicator(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
      GuardedOperations operations);
  ~GlooCommunicator() override;

  /// From now on all_reduce goes through memory that the processes share,
  /// `chunk` bytes at a time, if that can be had on all of them and all of them
  /// want it (`wanted`). Every process must call it, on one host. Throws what
  /// collectives throw; that there is no such memory is no error.
  void share_memory(
      bool wanted, int64_t chunk, std::chrono::milliseconds timeout);

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
  /// The part of it that is safe from another thread while this one waits.
  void leave_memory();

 private:
  class CuttableGloo;

  /// A sum that has been started, and by whose turn it is.
  struct StartedSum {
    at::Tensor tensor;
    Operation operation;
    bool done = false;
  };

  /// Works through the sums that were started, in that order, up to this one.
  void finish_sum(const StartedSum& sum);

  GuardedOperations operations_;
  c10::intrusive_ptr<CuttableGloo> group_;
  /// Nothing where all goes over Gloo.
  std::unique_ptr<SharedSum> shared_;
  std::mutex started_mutex_;
  std::deque<std::shared_ptr<StartedSum>> started_;
};

/// Throws where `source` is no process of `size`.
void check_source(int64_t source, int64_t size);

} // namespace accel::detail
