#include "core/gloo_communicator.h"

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
    : operations_(std::move(operations)),
      group_(c10::make_intrusive<CuttableGloo>(
          store,
          static_cast<int>(operations_.rank),
          static_cast<int>(operations_.size),
          options)) {}

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
  std::vector<at::Tensor> tensors{tensor};
  c10::intrusive_ptr<c10d::Work> work;
  const auto operation = operations_.begin("all_reduce", tensor);
  operations_.run(operation, [&] { work = group_->allreduce(tensors); });
  return [this, work, operation] {
    operations_.run(operation, [&] { work->wait(); });
  };
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

void GlooCommunicator::cut() {
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
