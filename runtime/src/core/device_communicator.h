#pragma once

#include <accel/detail/communicator.h>

#include "device/backend.h"
#include "core/guarded_operation.h"

#include <atomic>
#include <functional>
#include <memory>

namespace accel::detail {

/// One channel of a process that computes on a GPU. Tensors that the device
/// backend takes go through its group; all others, and so objects, numbers and
/// what files hold, through the host's communicator.
///
/// The calls of both count in one order, as all of a channel do. Results on the
/// device are there for everything that the current stream is given later. On
/// the channels for the program and for gradients the host waits for them, too:
/// they are read next anyway, and who waits here is watched (`Watchdog`);
/// those of operators on distributed tensors are not waited for.
class DeviceCommunicator : public Communicator {
 public:
  /// `group` is over the same processes as `host`; `backend` outlives this.
  /// `compare` is called with each operation before the group is given it; it
  /// throws on all processes where they are not in the same.
  DeviceCommunicator(
      std::unique_ptr<Communicator> host,
      c10::intrusive_ptr<c10d::Backend> group,
      const DeviceBackend& backend,
      c10::Device device,
      GuardedOperations operations,
      std::function<void(const Operation&)> compare);

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
  /// The results share one memory.
  Gathering all_to_all_async(const Exchange& exchange) override;
  /// The group has a stream of its own.
  bool works_beside() const override {
    return size() > 1;
  }
  void broadcast(at::Tensor& tensor, int64_t source) override;
  /// When it returns, what every process had given to its device before the
  /// call has been done.
  void barrier() override;

  /// Ends what waits in the group; what it has carried since is thrown away,
  /// with an error. From any thread; never throws.
  void abort() noexcept;
  /// Ends the group in order, while the other processes do the same.
  void shutdown();

 private:
  Operation begin(const char* name, const at::Tensor& tensor);
  /// Before an operation that the host waits for: the device's earlier work is
  /// no part of it, and a slow device no process that waits for others.
  void settle();
  /// Throws where the group was ended while `run` waited.
  void finish(const c10::intrusive_ptr<c10d::Work>& work);

  std::unique_ptr<Communicator> host_;
  c10::intrusive_ptr<c10d::Backend> group_;
  const DeviceBackend& backend_;
  c10::Device device_;
  GuardedOperations operations_;
  std::function<void(const Operation&)> compare_;
  std::atomic<bool> aborted_{false};
};

/// One channel of a process whose GPU's tensors are carried by Gloo: they are
/// copied to the host's memory and back.
class StagedCommunicator : public Communicator {
 public:
  /// `takes`: which tensors are copied.
  StagedCommunicator(
      std::unique_ptr<Communicator> host,
      std::function<bool(const at::Tensor&)> takes);

  int64_t rank() const override {
    return host_->rank();
  }
  int64_t size() const override {
    return host_->size();
  }
  void all_reduce(at::Tensor& tensor) override;
  Waiter all_reduce_async(at::Tensor& tensor) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  Gathering all_gather_async(const at::Tensor& tensor) override;
  Gathering all_to_all_async(const Exchange& exchange) override;
  bool works_beside() const override {
    return host_->works_beside();
  }
  void broadcast(at::Tensor& tensor, int64_t source) override;
  void barrier() override {
    host_->barrier();
  }

 private:
  std::unique_ptr<Communicator> host_;
  std::function<bool(const at::Tensor&)> takes_;
};

} // namespace accel::detail
