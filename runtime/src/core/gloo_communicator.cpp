#include "core/gloo_communicator.h"

#include "core/libtorch_releases.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace accel::detail {

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

Operation GlooCommunicator::begin(const char* name, const at::Tensor& tensor) {
  auto operation = operations_.begin(name, tensor);
  if (compares_over_gloo()) {
    // Cheap beside Gloo; shared memory can tell when it has waited for long.
    operation.site = CallSite::here();
  }
  return operation;
}

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
  const auto operation = begin("all_reduce", tensor);
  if (shared_ != nullptr && SharedCollectives::sums(tensor)) {
    return start(operation, [this, tensor, operation]() mutable {
      shared_->sum(tensor, operation);
    });
  }
  if (compares_over_gloo()) {
    std::vector<at::Tensor> parts;
    operations_.run(
        operation, [&] { parts = compare_over_gloo(operation, tensor); });
    if (!parts.empty()) {
      // In the order of the ranks, as in shared memory.
      const at::NoGradGuard no_grad;
      tensor.detach().copy_(parts[0]);
      for (size_t rank = 1; rank < parts.size(); ++rank) {
        tensor.detach().add_(parts[rank]);
      }
      return [] {};
    }
  }
  std::vector<at::Tensor> tensors{tensor};
  c10::intrusive_ptr<c10d::Work> work;
  operations_.run(operation, [&] { work = group_->allreduce(tensors); });
  return [this, work, operation] {
    operations_.run(operation, [&] { work->wait(); });
  };
}

Communicator::Waiter GlooCommunicator::start(
    const Operation& operation, std::function<void()> run) {
  auto started = std::make_shared<Started>();
  started->operation = operation;
  started->run = std::move(run);
  const std::lock_guard<std::mutex> lock(started_mutex_);
  started_.push_back(started);
  return [this, started] { finish(*started); };
}

void GlooCommunicator::finish(const Started& started) {
  while (!started.done) {
    std::shared_ptr<Started> next;
    {
      const std::lock_guard<std::mutex> lock(started_mutex_);
      next = started_.front();
      started_.pop_front();
    }
    operations_.run(next->operation, next->run);
    next->done = true;
  }
}

void GlooCommunicator::compare(const Operation& operation) {
  if (shared_ != nullptr) {
    start(operation, [this, operation] { shared_->compare(operation); })();
  } else {
    operations_.run(
        operation, [&] { compare_over_gloo(operation, at::Tensor()); });
  }
}

std::vector<at::Tensor> GlooCommunicator::compare_over_gloo(
    const Operation& operation,
    const at::Tensor& tensor) {
  // Always as long: Gloo reads past the end, or ends the program, where messages
  // differ.
  constexpr int64_t kRoom = 4096 - static_cast<int64_t>(sizeof(uint64_t));
  auto message = at::empty({4096}, at::kByte);
  auto* bytes = message.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &operation.fingerprint, sizeof(uint64_t));
  const bool fits = tensor.defined() && tensor.is_cpu() &&
      static_cast<int64_t>(tensor.nbytes()) <= kRoom;
  if (fits && tensor.numel() > 0) {
    std::memcpy(
        bytes + sizeof(uint64_t), tensor.const_data_ptr(), tensor.nbytes());
  }
  const auto messages = gather_over_gloo(message);
  for (const auto& other : messages) {
    if (std::memcmp(other.const_data_ptr(), bytes, sizeof(uint64_t)) != 0) {
      throw_out_of_step(operation);
    }
  }
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; fits && rank < messages.size(); ++rank) {
    parts.push_back(at::empty_like(tensor));
    if (tensor.numel() > 0) {
      std::memcpy(
          parts[rank].mutable_data_ptr(),
          messages[rank].const_data_ptr<uint8_t>() + sizeof(uint64_t),
          tensor.nbytes());
    }
  }
  return parts;
}

void GlooCommunicator::throw_out_of_step(const Operation& operation) {
  const auto text = describe_with_place(operation);
  auto padded = at::zeros({4096}, at::kByte);
  std::copy_n(
      text.data(),
      std::min<size_t>(text.size(), 4095),
      padded.mutable_data_ptr<uint8_t>());
  std::vector<std::string> operations;
  for (const auto& one : gather_over_gloo(padded)) {
    operations.emplace_back(
        reinterpret_cast<const char*>(one.const_data_ptr<uint8_t>()));
  }
  throw OutOfStep(describe_out_of_step(operations, operation.group));
}

void GlooCommunicator::share_memory(
    bool wanted, int64_t chunk, std::chrono::milliseconds timeout) {
  const int64_t bytes = SharedCollectives::bytes_for(size(), chunk);
  std::unique_ptr<SharedMemory> memory;
  // Process 0's memory by its name, which everybody has to open.
  auto name = at::zeros({64}, at::kByte);
  auto* text = reinterpret_cast<char*>(name.mutable_data_ptr<uint8_t>());
  const auto open = [&](const std::string& which) {
    try {
      memory = std::make_unique<SharedMemory>(
          which, rank(), size(), bytes, timeout);
      memory->on_long_wait(
          [log = operations_.log, channel = operations_.channel,
           group = operations_.group] {
            log->add_site(channel, group, CallSite::here());
          });
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
    shared_ = std::make_unique<SharedCollectives>(
        std::move(memory), rank(), size(), chunk);
  }
}

Communicator::Gathering GlooCommunicator::start_over_gloo(
    const at::Tensor& tensor) {
  std::vector<at::Tensor> outputs;
  std::vector<std::vector<at::Tensor>> output_bytes(1);
  for (int64_t i = 0; i < size(); ++i) {
    outputs.push_back(at::empty_like(tensor));
    output_bytes[0].push_back(bytes_over(outputs.back()));
  }
  std::vector<at::Tensor> input_bytes{bytes_over(tensor)};
  return [outputs, work = group_->allgather(output_bytes, input_bytes)] {
    work->wait();
    return outputs;
  };
}

std::vector<at::Tensor> GlooCommunicator::all_gather(const at::Tensor& tensor) {
  return all_gather_async(tensor)();
}

Communicator::Gathering GlooCommunicator::all_gather_async(
    const at::Tensor& tensor) {
  auto input = tensor.detach().contiguous();
  std::vector<at::Tensor> outputs;
  if (shared_ != nullptr && input.is_cpu()) {
    for (int64_t i = 0; i < size(); ++i) {
      outputs.push_back(at::empty_like(input));
    }
    const auto operation = begin("all_gather", tensor);
    auto wait = start(operation, [this, input, outputs, operation] {
      shared_->gather(input, outputs, operation);
    });
    return [outputs, wait = std::move(wait)] {
      wait();
      return outputs;
    };
  }
  if (input.numel() == 0 && !compares_over_gloo()) {
    barrier(); // keeps the calls of all processes matched
    outputs.assign(static_cast<size_t>(size()), at::empty_like(input));
    return [outputs] { return outputs; };
  }
  const auto operation = begin("all_gather", tensor);
  Gathering gather;
  operations_.run(operation, [&] {
    if (compares_over_gloo()) {
      outputs = compare_over_gloo(operation, input);
    }
    if (outputs.empty()) {
      gather = start_over_gloo(input);
    }
  });
  if (!gather) {
    return [outputs] { return outputs; };
  }
  return [this, operation, gather = std::move(gather)] {
    std::vector<at::Tensor> all;
    operations_.run(operation, [&] { all = gather(); });
    return all;
  };
}

Communicator::Gathering GlooCommunicator::all_to_all_async(
    const Exchange& exchange) {
  const auto& message = exchange.message;
  if (!message.is_cpu()) {
    return Communicator::all_to_all_async(exchange);
  }
  const auto width = static_cast<int64_t>(message.element_size());
  std::vector<at::Tensor> outputs;
  for (const int64_t count : exchange.counts) {
    outputs.push_back(at::empty({count}, message.options()));
  }
  // Messages are not equally long; the longest is the same everywhere.
  const auto operation = begin(
      "all_to_all",
      at::empty({1}, message.options()).expand({exchange.longest}));
  if (shared_ != nullptr) {
    const int64_t longest = exchange.longest * width;
    const auto begins = in_bytes(exchange.begins, width);
    auto wait =
        start(operation, [this, message, begins, outputs, longest, operation] {
          shared_->exchange(message, begins, outputs, longest, operation);
        });
    return [outputs, wait = std::move(wait)] {
      wait();
      return outputs;
    };
  }
  auto sends = in_bytes(exchange.sends, width);
  auto counts = in_bytes(exchange.counts, width);
  const auto joined = room_for(exchange);
  c10::intrusive_ptr<c10d::Work> work;
  operations_.run(operation, [&] {
    if (compares_over_gloo()) {
      compare_over_gloo(operation, at::Tensor());
    }
    if (exchange.longest > 0) {
      auto to = bytes_over(joined);
      auto from = bytes_over(message);
      work = group_->alltoall_base(to, from, counts, sends);
    }
  });
  return [this, operation, work, joined, outputs] {
    if (work) {
      operations_.run(operation, [&] { work->wait(); });
    }
    int64_t at = 0;
    for (const auto& output : outputs) {
      output.copy_(joined.narrow(0, at, output.numel()));
      at += output.numel();
    }
    return outputs;
  };
}

Communicator::Waiter GlooCommunicator::gather_pieces_async(
    const GatheredPieces& gathered) {
  if (shared_ == nullptr || !gathered.whole.is_cpu()) {
    return Communicator::gather_pieces_async(gathered);
  }
  const auto operation = begin("gather_pieces", gathered.whole);
  return start(operation, [this, gathered, operation] {
    shared_->gather_pieces(gathered, operation);
  });
}

Communicator::Waiter GlooCommunicator::sum_pieces_async(
    const SummedPieces& summed) {
  if (shared_ == nullptr || summed.pieces.empty() ||
      !SharedCollectives::sums(summed.pieces[0])) {
    return Communicator::sum_pieces_async(summed);
  }
  const auto operation = begin("sum_pieces", summed.pieces[0]);
  return start(operation, [this, summed, operation] {
    shared_->sum_pieces(summed, operation);
  });
}

void GlooCommunicator::broadcast(at::Tensor& tensor, int64_t source) {
  check_source(source, size());
  auto contiguous = tensor.detach().contiguous();
  if (contiguous.numel() == 0) {
    barrier();
    return;
  }
  std::vector<at::Tensor> tensors{bytes_over(contiguous)};
  c10d::BroadcastOptions options;
  options.rootRank = source;
  operations_.run(begin("broadcast", tensor), [&] {
    group_->broadcast(tensors, options)->wait();
  });
  if (!contiguous.is_alias_of(tensor)) {
    tensor.detach().copy_(contiguous);
  }
}

void GlooCommunicator::barrier() {
  operations_.run(begin("barrier", at::Tensor()), [&] {
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

at::Tensor bytes_over(const at::Tensor& tensor) {
  // The stride of one element may be any.
  return tensor.as_strided({tensor.numel()}, {1}).view(at::kByte);
}

at::Tensor room_for(const Exchange& exchange) {
  return at::empty(
      {std::accumulate(
          exchange.counts.begin(), exchange.counts.end(), int64_t{0})},
      exchange.message.options());
}

std::vector<int64_t> in_bytes(std::vector<int64_t> elements, int64_t width) {
  for (auto& each : elements) {
    each *= width;
  }
  return elements;
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
