// Collectives of the simulated device, as NCCL does them: work is ordered on a
// stream of the group's, `wait` makes the current stream wait and not the host,
// and an operation whose other end is gone waits until the group is ended. Gloo
// carries the memory.

#include "device/backend_library.h"
#include "sim/sim.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

using accel::detail::DeviceGroupRequest;
using c10::DistBackendError;
namespace sim = accel::sim;

namespace {

class ClosableGloo : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
};

/// An error that is put in, as NCCL reports them: ACCEL_SIM_ERROR is "RANK GROUP
/// NUMBER KIND", the operation of a group by its number from 1.
///   call  the call throws
///   work  it is found later, by who waits for the operation
///   time  the operation never begins; it is given up when its time is up
///   thread  it never begins; a thread of the group's finds the error, and ends
///         the process, as NCCL's watchdog does
struct PutInError {
  int64_t rank = -1;
  std::string group;
  int64_t number = 0;
  std::string kind;

  static PutInError of_environment() {
    PutInError error;
    if (const char* text = std::getenv("ACCEL_SIM_ERROR")) {
      std::istringstream(text) >> error.rank >> error.group >> error.number >>
          error.kind;
    }
    return error;
  }
};

[[noreturn]] void throw_remote_error() {
  TORCH_CHECK_WITH(
      DistBackendError,
      false,
      "NCCL error: remote process exited or there was a network error, "
      "ncclRemoteError");
}

/// Of one operation: what has to be done when the stream is there.
class StreamWork : public c10d::Work {
 public:
  StreamWork(const c10::Stream& stream, bool fails)
      : device_(stream.device()), done_(sim::kSim), fails_(fails) {
    done_.record(stream);
  }
  bool isCompleted() override {
    return done_.query();
  }
  bool isSuccess() const override {
    return done_.query();
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (fails_) {
      throw_remote_error();
    }
    synchronize();
    return true;
  }
  /// Of the host nobody waits.
  void synchronize() override {
    done_.block(c10::impl::VirtualGuardImpl(sim::kSim).getStream(device_));
  }

 private:
  c10::Device device_;
  c10::Event done_;
  bool fails_;
};

/// Of an operation between `startCoalescing` and `endCoalescing`, whose work is the
/// one to wait for.
class PartOfCoalesced : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    TORCH_CHECK(false, "sim: the operation is one of several: wait for all of them");
  }
};

class Group : public c10d::Backend {
 public:
  explicit Group(const DeviceGroupRequest& request)
      : c10d::Backend(
            static_cast<int>(request.rank), static_cast<int>(request.size)),
        device_(request.device),
        timeout_(request.timeout),
        name_(request.name),
        stream_(c10::impl::VirtualGuardImpl(sim::kSim).getNewStream(device_)) {
    const auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    gloo_ = c10::make_intrusive<ClosableGloo>(
        request.store, getRank(), getSize(), options);
  }

  const std::string getBackendName() const override {
    return "sim";
  }

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options) override {
    return run("allreduce", tensors, [=](ClosableGloo& gloo) {
      auto views = views_of(tensors);
      return gloo.allreduce(views, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override {
    auto all = inputs;
    std::vector<std::vector<at::Tensor>> output_views;
    for (const auto& list : outputs) {
      output_views.push_back(views_of(list));
      all.insert(all.end(), list.begin(), list.end());
    }
    const auto input_views = views_of(inputs);
    return run("allgather", all, [=](ClosableGloo& gloo) {
      auto out = output_views;
      auto in = input_views;
      return gloo.allgather(out, in, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    const auto views = views_of({output, input});
    return run("alltoall", {output, input}, [=](ClosableGloo& gloo) {
      auto [out, in] = std::pair(views[0], views[1]);
      auto counts = output_sizes;
      auto sends = input_sizes;
      return gloo.alltoall_base(out, in, counts, sends, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& options) override {
    return run("broadcast", tensors, [=](ClosableGloo& gloo) {
      auto views = views_of(tensors);
      return gloo.broadcast(views, options);
    });
  }

  /// After what the current stream was given, on all devices; the host does not
  /// wait.
  c10::intrusive_ptr<c10d::Work> barrier(
      const c10d::BarrierOptions& /*options*/) override {
    std::vector<at::Tensor> one{
        at::zeros({1}, at::TensorOptions(at::kFloat).device(device_))};
    return allreduce(one, {});
  }

  bool supportsCoalescing() const override {
    return true;
  }
  void startCoalescing() override {
    coalescing_ = true;
  }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    coalescing_ = false;
    const c10::DeviceGuard guard(device_);
    return c10::make_intrusive<StreamWork>(stream_, false);
  }

  void abort() override {
    if (!aborted_->exchange(true)) {
      gloo_->close();
      // Never destroyed: its end would wait for what still waits in it.
      new c10::intrusive_ptr<ClosableGloo>(gloo_);
    }
  }
  void shutdown() override {
    c10::impl::VirtualGuardImpl(sim::kSim).synchronizeStream(stream_);
  }

 private:
  static std::vector<at::Tensor> views_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> views;
    for (const auto& tensor : tensors) {
      views.push_back(sim::kernel_view(tensor));
    }
    return views;
  }

  /// After what the current stream was given, on the group's.
  template <typename Operation>
  c10::intrusive_ptr<c10d::Work> run(
      const char* name,
      const std::vector<at::Tensor>& tensors,
      Operation operation) {
    const c10::DeviceGuard guard(device_);
    const bool fails = ++operations_ == put_in_.number &&
        put_in_.rank == getRank() && put_in_.group == name_;
    if (fails && put_in_.kind == "call") {
      throw_remote_error();
    }
    for (const auto& tensor : tensors) {
      TORCH_CHECK(
          tensor.device() == device_,
          "sim: ",
          name,
          " of a group on ",
          device_,
          " was given a tensor on ",
          tensor.device());
    }
    if (fails && put_in_.kind == "thread") {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        throw_remote_error();
      }).detach();
    }
    c10::Event ready(sim::kSim);
    ready.record(c10::impl::VirtualGuardImpl(sim::kSim).getStream(device_));
    ready.block(stream_);
    sim::give(
        stream_,
        name,
        [gloo = gloo_,
         name,
         device = device_,
         operation,
         aborted = aborted_,
         never = fails &&
             (put_in_.kind == "time" || put_in_.kind == "thread"),
         timeout = timeout_] {
          if (*aborted) {
            return;
          }
          try {
            TORCH_CHECK(!never, "it has not begun");
            const auto work = operation(*gloo);
            // Gloo's own closing wakes only the other end.
            while (!*aborted && !work->isCompleted()) {
              std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
            if (!*aborted) {
              work->wait();
            }
          } catch (const std::exception& error) {
            // A kernel does not notice that the others are gone; the library
            // says so.
            const std::string text = error.what();
            if (!*aborted) {
              std::cerr << "sim: " + std::string(name) + " on " +
                      device.str() + " does not end: " +
                      text.substr(0, text.find('\n')) + "\n";
            }
            const auto end = std::chrono::steady_clock::now() + timeout;
            while (!*aborted) {
              if (std::chrono::steady_clock::now() > end) {
                throw;
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
          }
        });
    for (const auto& tensor : tensors) {
      tensor.record_stream(stream_);
    }
    if (coalescing_) {
      return c10::make_intrusive<PartOfCoalesced>();
    }
    return c10::make_intrusive<StreamWork>(
        stream_, fails && put_in_.kind == "work");
  }

  c10::Device device_;
  std::chrono::milliseconds timeout_;
  std::string name_;
  const PutInError put_in_ = PutInError::of_environment();
  int64_t operations_ = 0;
  bool coalescing_ = false;
  c10::Stream stream_;
  c10::intrusive_ptr<ClosableGloo> gloo_;
  std::shared_ptr<std::atomic<bool>> aborted_ =
      std::make_shared<std::atomic<bool>>(false);
};

} // namespace

#define ACCEL_SIM_EXPORT extern "C" __attribute__((visibility("default")))

ACCEL_SIM_EXPORT int accel_backend_version() {
  return accel::detail::kBackendLibraryVersion;
}

ACCEL_SIM_EXPORT void accel_backend_check(std::string& /*problem*/) {}

ACCEL_SIM_EXPORT void accel_backend_make(
    const DeviceGroupRequest& request,
    c10::intrusive_ptr<c10d::Backend>& group) {
  group = c10::make_intrusive<Group>(request);
}

/// The processes of a host see the same devices.
ACCEL_SIM_EXPORT void accel_backend_identity(
    c10::Device device, std::string& identity) {
  identity = device.str();
}
