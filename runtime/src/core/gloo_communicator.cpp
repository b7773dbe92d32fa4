#include "core/gloo_communicator.h"

#include "core/libtorch_releases.h"

#include <ATen/ATen.h>

#include <utility>

namespace accel::detail {
namespace {

/// Gloo moves some dtypes only; bytes are bytes.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(),
      {static_cast<int64_t>(tensor.nbytes())},
      at::TensorOptions().dtype(at::kByte));
}

} // namespace

/// Gloo, whose connections can be cut while operations are waiting.
class GlooCommunicator::CuttableGloo : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  void cut() {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
};

GlooCommunicator::GlooCommunicator(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
    GuardedOperations operations)
    : operations_(std::move(operations)), group_([&] {
        const SilentConnecting silent;
        return c10::make_intrusive<CuttableGloo>(
            store,
            static_cast<int>(operations_.rank),
            static_cast<int>(operations_.size),
            options);
      }()) {}

GlooCommunicator::~GlooCommunicator() = default;

void GlooCommunicator::all_reduce(at::Tensor& tensor) {
  all_reduce_async(tensor)();
}

Communicator::Waiter GlooCommunicator::all_reduce_async(at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.is_contiguous(),
      "accel: all_reduce needs a contiguous tensor, got strides ",
      tensor.strides(),
      " for sizes ",
      tensor.sizes());
  const auto operation = operations_.begin("all_reduce", tensor);
  if (shared_ != nullptr && SharedSum::takes(tensor)) {
    auto sum = std::make_shared<StartedSum>();
    sum->tensor = tensor;
    sum->operation = operation;
    const std::lock_guard<std::mutex> lock(started_mutex_);
    started_.push_back(sum);
    return [this, sum] { finish_sum(*sum); };
  }
  std::vector<at::Tensor> tensors{tensor};
  c10::intrusive_ptr<c10d::Work> work;
  operations_.run(operation, [&] { work = group_->allreduce(tensors); });
  return [this, work, operation] {
    operations_.run(operation, [&] { work->wait(); });
  };
}

void GlooCommunicator::finish_sum(const StartedSum& sum) {
  while (!sum.done) {
    std::shared_ptr<StartedSum> next;
    {
      const std::lock_guard<std::mutex> lock(started_mutex_);
      next = started_.front();
      started_.pop_front();
    }
    operations_.run(next->operation, [&] { shared_->sum(next->tensor); });
    next->done = true;
  }
}

void GlooCommunicator::share_memory(
    bool wanted, int64_t chunk, std::chrono::milliseconds timeout) {
  const int64_t bytes = SharedSum::bytes_for(size(), chunk);
  std::unique_ptr<SharedMemory> memory;
  // Process 0's memory by its name, which everybody has to open.
  auto name = at::zeros({64}, at::kByte);
  auto* text = reinterpret_cast<char*>(name.mutable_data_ptr<uint8_t>());
  const auto open = [&](const std::string& which) {
    try {
      memory = std::make_unique<SharedMemory>(
          which, rank(), size(), bytes, timeout);
    } catch (const c10::Error&) {
      // Containers often have little of it. Gloo does without.
    }
  };
  if (wanted && rank() == 0) {
    open("");
    if (memory != nullptr) {
      memory->name().copy(text, 63);
    }
  }
  // Not among the operations that are counted: these are the program's.
  std::vector<at::Tensor> names{name};
  group_->broadcast(names)->wait();
  if (wanted && rank() != 0 && text[0] != '\0') {
    open(text);
  }
  std::vector<at::Tensor> have{
      at::full({1}, memory != nullptr ? 1 : 0, at::kInt)};
  group_->allreduce(have)->wait();
  if (memory != nullptr && rank() == 0) {
    memory->unlink();
  }
  if (have[0].item<int>() == size()) {
    shared_ = std::make_unique<SharedSum>(
        std::move(memory), rank(), size(), chunk);
  }
}

std::vector<at::Tensor> GlooCommunicator::all_gather(const at::Tensor& tensor) {
  auto input = tensor.detach().contiguous();
  std::vector<at::Tensor> outputs;
  std::vector<std::vector<at::Tensor>> output_bytes(1);
  for (int64_t i = 0; i < size(); ++i) {
    outputs.push_back(at::empty_like(input));
    output_bytes[0].push_back(bytes_of(outputs.back()));
  }
  if (input.numel() == 0) {
    barrier(); // keeps the calls of all processes matched
    return outputs;
  }
  std::vector<at::Tensor> input_bytes{bytes_of(input)};
  operations_.run(operations_.begin("all_gather", tensor), [&] {
    group_->allgather(output_bytes, input_bytes)->wait();
  });
  return outputs;
}

void GlooCommunicator::broadcast(at::Tensor& tensor, int64_t source) {
  check_source(source, size());
  auto contiguous = tensor.detach().contiguous();
  if (contiguous.numel() == 0) {
    barrier();
    return;
  }
  std::vector<at::Tensor> tensors{bytes_of(contiguous)};
  c10d::BroadcastOptions options;
  options.rootRank = source;
  operations_.run(operations_.begin("broadcast", tensor), [&] {
    group_->broadcast(tensors, options)->wait();
  });
  if (!contiguous.is_alias_of(tensor)) {
    tensor.detach().copy_(contiguous);
  }
}

void GlooCommunicator::barrier() {
  operations_.run(operations_.begin("barrier", at::Tensor()), [&] {
    group_->barrier()->wait();
  });
}

void GlooCommunicator::leave_memory() {
  if (shared_ != nullptr) {
    shared_->memory().leave();
  }
}

void GlooCommunicator::cut() {
  leave_memory();
  group_->cut();
}

void check_source(int64_t source, int64_t size) {
  TORCH_CHECK(
      source >= 0 && source < size,
      "accel: broadcast from process ",
      source,
      ", but there are processes 0 to ",
      size - 1,
      " only.");
}

} // namespace accel::detail
