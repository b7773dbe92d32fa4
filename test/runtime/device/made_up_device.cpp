#include "made_up_device.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace accel::test {
namespace {

struct Pending {
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<std::atomic<bool>> aborted;
};

/// Of this process, as a GPU is.
struct Hardware {
  std::mutex mutex;
  std::vector<std::string> events;
  std::vector<Pending> stream;

  static Hardware& get() {
    static Hardware hardware;
    return hardware;
  }
  void note(const std::string& event) {
    const std::lock_guard<std::mutex> lock(mutex);
    events.push_back(event);
  }
};

/// One whose result nobody waits for here.
class QueuedWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override {
    return true;
  }
  /// As far as the host can see; for the rest it waits for the stream.
  bool isCompleted() override {
    return true;
  }
};

class ClosableGloo : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
};

class Group : public c10d::Backend {
 public:
  explicit Group(const detail::DeviceGroupRequest& request)
      : c10d::Backend(
            static_cast<int>(request.rank),
            static_cast<int>(request.size)),
        name_(request.name),
        store_(request.store) {
    // Gloo's destructor waits for what cannot end any more.
    const auto options =
        c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(5));
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    gloo_ = c10::make_intrusive<ClosableGloo>(
        store_,
        getRank(),
        getSize(),
        options);
  }

  const std::string getBackendName() const override {
    return "made up";
  }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options) override {
    return queue("allreduce", gloo_->allreduce(tensors, options));
  }
  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override {
    return queue("allgather", gloo_->allgather(outputs, inputs, options));
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    return queue(
        "alltoall",
        gloo_->alltoall_base(
            output, input, output_sizes, input_sizes, options));
  }
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& options) override {
    return queue("broadcast", gloo_->broadcast(tensors, options));
  }
  void abort() override {
    Hardware::get().note("abort " + name_);
    *aborted_ = true;
    gloo_->close();
  }
  void shutdown() override {
    // What NCCL does here needs the others and the store.
    const std::string key = "shutdown" + std::to_string(getRank());
    store_->set(key, std::vector<uint8_t>{1});
    for (int rank = 0; rank < getSize(); ++rank) {
      store_->wait(
          {"shutdown" + std::to_string(rank)},
          std::chrono::seconds(20));
    }
    Hardware::get().note("shutdown " + name_);
  }

 private:
  c10::intrusive_ptr<c10d::Work> queue(
      const std::string& operation,
      c10::intrusive_ptr<c10d::Work> work) {
    auto& hardware = Hardware::get();
    hardware.note(operation + " " + name_);
    const std::lock_guard<std::mutex> lock(hardware.mutex);
    hardware.stream.push_back({std::move(work), aborted_});
    return c10::make_intrusive<QueuedWork>();
  }

  std::string name_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<ClosableGloo> gloo_;
  std::shared_ptr<std::atomic<bool>> aborted_ =
      std::make_shared<std::atomic<bool>>(false);
};

/// As the driver does: until all is done, or was ended.
void wait_for_stream() {
  auto& hardware = Hardware::get();
  hardware.note("wait");
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(hardware.mutex);
      auto& stream = hardware.stream;
      stream.erase(
          std::remove_if(
              stream.begin(),
              stream.end(),
              [](const Pending& pending) {
                // Where the other process has ended its group, Gloo is told
                // so; a GPU goes on waiting until its own is ended.
                return *pending.aborted ||
                    (pending.work->isCompleted() && pending.work->isSuccess());
              }),
          stream.end());
      if (stream.empty()) {
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

} // namespace

std::vector<std::string> MadeUpDevice::events() const {
  auto& hardware = Hardware::get();
  const std::lock_guard<std::mutex> lock(hardware.mutex);
  return hardware.events;
}

int64_t MadeUpDevice::count(const std::string& event) const {
  const auto all = events();
  return std::count(all.begin(), all.end(), event);
}

detail::DeviceBackend MadeUpDevice::backend(const std::string& identity) const {
  detail::DeviceBackend backend;
  backend.make = [](const detail::DeviceGroupRequest& request)
      -> c10::intrusive_ptr<c10d::Backend> {
    Hardware::get().note("make " + request.name);
    return c10::make_intrusive<Group>(request);
  };
  backend.identity = [identity](c10::Device) { return identity; };
  backend.wait = [](c10::Device) { wait_for_stream(); };
  backend.wait_for_all = backend.wait;
  backend.advice = " The made-up cable is loose.";
  backend.takes = [](const at::Tensor& tensor) {
    return tensor.is_floating_point();
  };
  return backend;
}

} // namespace accel::test
