#pragma once

#include <accel/detail/communicator.h>

#include "core/guarded_operation.h"
#include "core/shared_collectives.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace accel::detail {

/// One channel over Gloo: tensors in the host's memory. Between processes of
/// one host sums and gatherings can go through memory that they share.
class GlooCommunicator : public Communicator {
 public:
  /// Connects; every process must call it. Throws what c10d throws.
  GlooCommunicator(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
      GuardedOperations operations);
  ~GlooCommunicator() override;

  /// From now on all_reduce and all_gather go through memory that the processes
  /// share, `chunk` bytes at a time, if that can be had on all of them and all of them
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
  Gathering all_gather_async(const at::Tensor& tensor) override;
  Gathering all_to_all_async(const Exchange& exchange) override;
  Waiter gather_pieces_async(const GatheredPieces& gathered) override;
  /// Gloo has threads; who shares memory copies by himself.
  bool works_beside() const override {
    return !shares_memory() && size() > 1;
  }
  Waiter sum_pieces_async(const SummedPieces& summed) override;
  void broadcast(at::Tensor& tensor, int64_t source) override;
  void barrier() override;

  /// Throws `c10::Error` on all processes where this is not the same operation
  /// on all of them; names them. For what is carried by somebody else next.
  void compare(const Operation& operation);
  /// Whether that goes through memory that they share.
  bool shares_memory() const {
    return shared_ != nullptr;
  }

  /// Ends the connections, so that what waits on any process throws.
  void cut();
  /// The part of it that is safe from another thread while this one waits.
  void leave_memory();

 private:
  class CuttableGloo;

  /// What goes through the memory and has been started, and by whose turn it is.
  struct Started {
    Operation operation;
    std::function<void()> run;
    bool done = false;
  };

  Operation begin(const char* name, const at::Tensor& tensor);
  /// `run` belongs to `operation`, which has begun. Returns what waits for it.
  Waiter start(const Operation& operation, std::function<void()> run);
  /// Works through what was started, in that order, up to this one.
  void finish(const Started& started);
  /// Whether what goes over Gloo has to be compared before: nobody else does.
  bool compares_over_gloo() const {
    return operations_.channel == Channel::kOperators && shared_ == nullptr;
  }
  /// Throws `OutOfStep` where the processes are not in the same operation. The
  /// message has room for a small tensor: where `tensor` fits, returns that of
  /// every process, else nothing.
  std::vector<at::Tensor> compare_over_gloo(
      const Operation& operation,
      const at::Tensor& tensor);
  [[noreturn]] void throw_out_of_step(const Operation& operation);
  std::vector<at::Tensor> gather_over_gloo(const at::Tensor& tensor) {
    return start_over_gloo(tensor)();
  }
  Gathering start_over_gloo(const at::Tensor& tensor);

  GuardedOperations operations_;
  c10::intrusive_ptr<CuttableGloo> group_;
  /// Nothing where all goes over Gloo.
  std::unique_ptr<SharedCollectives> shared_;
  std::mutex started_mutex_;
  std::deque<std::shared_ptr<Started>> started_;
};

/// A contiguous tensor's bytes, over the same storage: no backend has all dtypes,
/// and who carries them must hold the memory, for somebody may never wait.
at::Tensor bytes_over(const at::Tensor& tensor);

/// Memory for all that this process receives, by rank.
at::Tensor room_for(const Exchange& exchange);
/// Places or counts of elements of `width` bytes, in bytes.
std::vector<int64_t> in_bytes(std::vector<int64_t> elements, int64_t width);

/// Throws where `source` is no process of `size`.
void check_source(int64_t source, int64_t size);

} // namespace accel::detail
