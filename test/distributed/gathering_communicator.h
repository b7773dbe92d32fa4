#pragma once

#include <accel/detail/communicator.h>

#include <cstdint>

namespace accel::distributed::test {

/// A communicator of tests, which has to know how to gather and to meet only.
/// Sums are added in the order of the ranks: equal bits everywhere.
class GatheringCommunicator : public accel::detail::Communicator {
 public:
  GatheringCommunicator(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  int64_t rank() const final {
    return rank_;
  }
  int64_t size() const final {
    return size_;
  }
  void all_reduce(at::Tensor& tensor) final;
  /// Done when it returns.
  Waiter all_reduce_async(at::Tensor& tensor) final;
  void broadcast(at::Tensor& tensor, int64_t source) final;

 private:
  int64_t rank_;
  int64_t size_;
};

} // namespace accel::distributed::test
