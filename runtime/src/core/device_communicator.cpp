#include "core/device_communicator.h"

#include "core/gloo_communicator.h"

#include <ATen/ATen.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace accel::detail {
namespace {

/// In the host's memory, always a tensor of its own.
at::Tensor copy_to_host(const at::Tensor& tensor) {
  return tensor.detach().to(
      at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

/// What the host's memory has received, on a device.
Communicator::Gathering to_device(
    c10::Device device, Communicator::Gathering receive) {
  return [device, receive = std::move(receive)] {
    auto received = receive();
    for (auto& part : received) {
      part = part.to(device);
    }
    return received;
  };
}

/// Looks until the work is done or `ended`; throws what it failed with. Who waits
/// for the device instead does not come back where a process has died: NCCL's
/// kernel waits for it, until c10d ends the whole process.
void look_until_done(c10d::Work& work, const std::atomic<bool>& ended) {
  const auto begin = std::chrono::steady_clock::now();
  while (!ended && !work.isCompleted()) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(1)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  if (const auto failure = work.exception()) {
    std::rethrow_exception(failure);
  }
}

} // namespace

DeviceCommunicator::DeviceCommunicator(
    std::unique_ptr<Communicator> host,
    c10::intrusive_ptr<c10d::Backend> group,
    const DeviceBackend& backend,
    c10::Device device,
    GuardedOperations operations,
    std::function<void(const Operation&)> compare)
    : host_(std::move(host)),
      group_(std::move(group)),
      backend_(backend),
      device_(device),
      operations_(std::move(operations)),
      compare_(std::move(compare)) {}

Operation DeviceCommunicator::begin(
    const char* name, const at::Tensor& tensor) {
  auto operation = operations_.begin(name, tensor);
  if (compare_) {
    compare_(operation);
  }
  return operation;
}

void DeviceCommunicator::settle() {
  if (operations_.channel == Channel::kMain) {
    backend_.wait(device_);
  }
}

void DeviceCommunicator::finish(const c10::intrusive_ptr<c10d::Work>& work) {
  // Of NCCL this only tells the current stream to wait.
  work->wait();
  if (operations_.channel != Channel::kOperators) {
    look_until_done(*work, aborted_);
    backend_.wait(device_);
  }
  // A group that is ended lets go of who waits, without a result.
  TORCH_CHECK(!aborted_, "the connections between the GPUs were ended");
}

void DeviceCommunicator::all_reduce(at::Tensor& tensor) {
  all_reduce_async(tensor)();
}

Communicator::Waiter DeviceCommunicator::all_reduce_async(at::Tensor& tensor) {
  if (!backend_.takes(tensor)) {
    return host_->all_reduce_async(tensor);
  }
  TORCH_CHECK(
      tensor.is_contiguous(),
      "accel: all_reduce needs a contiguous tensor, got strides ",
      tensor.strides(),
      " for sizes ",
      tensor.sizes());
  settle();
  std::vector<at::Tensor> tensors{tensor};
  c10::intrusive_ptr<c10d::Work> work;
  const auto operation = begin("all_reduce", tensor);
  operations_.run(operation, [&] { work = group_->allreduce(tensors); });
  return [this, work, operation] {
    operations_.run(operation, [&] { finish(work); });
  };
}

std::vector<at::Tensor> DeviceCommunicator::all_gather(
    const at::Tensor& tensor) {
  return all_gather_async(tensor)();
}

Communicator::Gathering DeviceCommunicator::all_gather_async(
    const at::Tensor& tensor) {
  if (!backend_.takes(tensor) || tensor.numel() == 0) {
    return host_->all_gather_async(tensor);
  }
  const auto input = tensor.detach().contiguous();
  std::vector<at::Tensor> outputs;
  std::vector<std::vector<at::Tensor>> output_bytes(1);
  for (int64_t i = 0; i < size(); ++i) {
    outputs.push_back(at::empty_like(input));
    output_bytes[0].push_back(bytes_over(outputs.back()));
  }
  std::vector<at::Tensor> input_bytes{bytes_over(input)};
  settle();
  const auto operation = begin("all_gather", tensor);
  c10::intrusive_ptr<c10d::Work> work;
  operations_.run(operation, [&] {
    work = group_->allgather(output_bytes, input_bytes);
  });
  return [this, operation, work, outputs] {
    operations_.run(operation, [&] { finish(work); });
    return outputs;
  };
}

Communicator::Gathering DeviceCommunicator::all_to_all_async(
    const Exchange& exchange) {
  const auto& message = exchange.message;
  if (!backend_.takes(message) || exchange.longest == 0) {
    return host_->all_to_all_async(exchange);
  }
  const auto width = static_cast<int64_t>(message.element_size());
  auto sends = in_bytes(exchange.sends, width);
  auto counts = in_bytes(exchange.counts, width);
  const auto input = message.detach();
  const auto joined = room_for(exchange);
  auto from = bytes_over(input);
  auto to = bytes_over(joined);
  settle();
  // Messages are not equally long; the longest is the same everywhere.
  const auto operation =
      begin("all_to_all", message.new_empty({1}).expand({exchange.longest}));
  c10::intrusive_ptr<c10d::Work> work;
  operations_.run(operation, [&] {
    work = group_->alltoall_base(to, from, counts, sends);
  });
  return [this, operation, work, joined, input, received = exchange.counts] {
    operations_.run(operation, [&] { finish(work); });
    return joined.split_with_sizes(received);
  };
}

void DeviceCommunicator::broadcast(at::Tensor& tensor, int64_t source) {
  check_source(source, size());
  if (!backend_.takes(tensor) || tensor.numel() == 0) {
    host_->broadcast(tensor, source);
    return;
  }
  auto contiguous = tensor.detach().contiguous();
  std::vector<at::Tensor> tensors{bytes_over(contiguous)};
  c10d::BroadcastOptions options;
  options.rootRank = source;
  settle();
  operations_.run(begin("broadcast", tensor), [&] {
    finish(group_->broadcast(tensors, options));
  });
  if (!contiguous.is_alias_of(tensor)) {
    tensor.detach().copy_(contiguous);
  }
}

void DeviceCommunicator::barrier() {
  backend_.wait_for_all(device_);
  host_->barrier();
}

void DeviceCommunicator::abort() noexcept {
  aborted_ = true;
  try {
    if (group_) {
      group_->abort();
    }
  } catch (...) {
    // What cannot be ended is gone already.
  }
}

void DeviceCommunicator::shutdown() {
  if (group_) {
    backend_.wait_for_all(device_);
    group_->shutdown();
  }
}

StagedCommunicator::StagedCommunicator(
    std::unique_ptr<Communicator> host,
    std::function<bool(const at::Tensor&)> takes)
    : host_(std::move(host)), takes_(std::move(takes)) {}

void StagedCommunicator::all_reduce(at::Tensor& tensor) {
  all_reduce_async(tensor)();
}

Communicator::Waiter StagedCommunicator::all_reduce_async(at::Tensor& tensor) {
  if (!takes_(tensor)) {
    return host_->all_reduce_async(tensor);
  }
  auto staged = copy_to_host(tensor.contiguous());
  auto wait = host_->all_reduce_async(staged);
  return [tensor, staged, wait = std::move(wait)] {
    wait();
    tensor.detach().copy_(staged);
  };
}

std::vector<at::Tensor> StagedCommunicator::all_gather(
    const at::Tensor& tensor) {
  return all_gather_async(tensor)();
}

Communicator::Gathering StagedCommunicator::all_gather_async(
    const at::Tensor& tensor) {
  if (!takes_(tensor)) {
    return host_->all_gather_async(tensor);
  }
  return to_device(
      tensor.device(), host_->all_gather_async(copy_to_host(tensor)));
}

Communicator::Gathering StagedCommunicator::all_to_all_async(
    const Exchange& exchange) {
  if (!takes_(exchange.message)) {
    return host_->all_to_all_async(exchange);
  }
  auto staged = exchange;
  staged.message = copy_to_host(exchange.message);
  return to_device(
      exchange.message.device(), host_->all_to_all_async(staged));
}

void StagedCommunicator::broadcast(at::Tensor& tensor, int64_t source) {
  if (!takes_(tensor)) {
    host_->broadcast(tensor, source);
    return;
  }
  auto staged = copy_to_host(tensor);
  host_->broadcast(staged, source);
  if (source != rank()) {
    tensor.detach().copy_(staged);
  }
}

} // namespace accel::detail
