#include <accel/data/batch_codec.h>
#include <accel/data/dealing.h>

#include <accel/data/cursor.h>
#include <accel/detail/communicator.h>

#include "checkpoint/xxh64.h"
#include "core/runtime.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace accel {
namespace data {
namespace {

/// Where tensors begin in a message.
constexpr size_t kAlignment = 64;
/// Of a tensor, what a fingerprint looks at, and of how many pieces.
constexpr size_t kFingerprintBytes = 4096;
constexpr int64_t kFingerprintPieces = 256;

} // namespace

void BatchWriter::bytes(const void* data, size_t size) {
  if (keep_ == Keep::kFingerprint) {
    if (++pieces_ > kFingerprintPieces) {
      return;
    }
    fingerprint_ = accel::detail::mix_fingerprint(
        fingerprint_,
        checkpoint::xxh64(data, std::min(size, kFingerprintBytes)));
  } else {
    text_.append(static_cast<const char*>(data), size);
  }
}

void BatchWriter::number(int64_t value) {
  bytes(&value, sizeof value);
}

void BatchWriter::tensor(const torch::Tensor& value) {
  if (pieces_ > kFingerprintPieces) {
    return;
  }
  if (!value.defined()) {
    number(-1);
    return;
  }
  TORCH_CHECK(
      value.layout() == at::kStrided && !value.is_quantized(),
      "accel: the data set returned a ",
      value.layout(),
      value.is_quantized() ? " quantized" : "",
      " tensor, which cannot be sent to the other processes. Return dense "
      "tensors, or let every process read (dispatch_batches(false)).");
  number(value.dim());
  number(static_cast<int64_t>(value.scalar_type()));
  number(value.is_cpu() ? 0 : 1);
  for (const int64_t size : value.sizes()) {
    number(size);
  }
  auto dense = value.detach();
  if (keep_ == Keep::kFingerprint) {
    const auto most =
        static_cast<int64_t>(kFingerprintBytes / dense.element_size());
    dense = dense.reshape(-1).slice(0, 0, most);
  }
  dense = dense.cpu().contiguous();
  if (keep_ == Keep::kAll) {
    text_.resize((text_.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
  bytes(dense.const_data_ptr(), dense.nbytes());
}

size_t BatchReader::take(size_t size) {
  TORCH_CHECK(
      size <= bytes_.nbytes() && position_ <= bytes_.nbytes() - size,
      "accel: a batch from process 0 is shorter than its reader expects. "
      "Does BatchCodec::read read what BatchCodec::write has written?");
  const size_t begin = position_;
  position_ += size;
  return begin;
}

void BatchReader::bytes(void* data, size_t size) {
  const size_t begin = take(size);
  if (size > 0) {
    std::memcpy(
        data, static_cast<const char*>(bytes_.const_data_ptr()) + begin, size);
  }
}

int64_t BatchReader::number() {
  int64_t value = 0;
  bytes(&value, sizeof value);
  return value;
}

torch::Tensor BatchReader::tensor() {
  const int64_t dim = number();
  if (dim < 0) {
    return {};
  }
  const auto type = static_cast<at::ScalarType>(number());
  const bool on_gpu = number() != 0;
  std::vector<int64_t> sizes;
  size_t size = c10::elementSize(type);
  for (int64_t i = 0; i < dim; ++i) {
    sizes.push_back(number());
    size *= static_cast<size_t>(sizes.back());
  }
  position_ = (position_ + kAlignment - 1) / kAlignment * kAlignment;
  const size_t begin = take(size);
  auto value = at::from_blob(
      static_cast<char*>(bytes_.mutable_data_ptr()) + begin,
      sizes,
      [bytes = bytes_](void*) {},
      at::TensorOptions().dtype(type));
  return on_gpu ? value.to(device_) : value;
}

} // namespace data

namespace detail {
namespace {

enum Field : int64_t {
  kStatus,
  kLast,
  kRemainder,
  kRows,
  kFingerprint,
  kGeneratorSize,
  kFields
};

/// Values of kStatus.
constexpr int64_t kEnd = 0;
constexpr int64_t kBatch = 1;
constexpr int64_t kFailure = 2;

/// The numbers of a step, and behind them the size of each process's part.
at::Tensor make_header() {
  return at::zeros({kFields + communicator().size()}, at::kLong);
}

void broadcast_bytes(std::string& bytes) {
  if (bytes.empty()) {
    return;
  }
  auto tensor = at::from_blob(
      bytes.data(),
      {static_cast<int64_t>(bytes.size())},
      at::TensorOptions().dtype(at::kByte));
  communicator().broadcast(tensor, /*source=*/0);
}

void set_generator(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

} // namespace

void send_step(
    const DealtStep& step,
    const std::vector<std::string>& parts,
    bool send_generator) {
  auto header = make_header();
  auto* fields = header.mutable_data_ptr<int64_t>();
  fields[kStatus] = step.batch ? kBatch : kEnd;
  fields[kLast] = step.last ? 1 : 0;
  fields[kRemainder] = step.remainder;
  fields[kRows] = step.rows;
  std::memcpy(&fields[kFingerprint], &step.fingerprint, sizeof(int64_t));
  std::string payload;
  if (send_generator) {
    const auto state = generator_state().contiguous();
    fields[kGeneratorSize] = static_cast<int64_t>(state.nbytes());
    payload.assign(
        static_cast<const char*>(state.const_data_ptr()), state.nbytes());
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    fields[kFields + static_cast<int64_t>(rank)] =
        static_cast<int64_t>(parts[rank].size());
    payload += parts[rank];
  }
  communicator().broadcast(header, /*source=*/0);
  broadcast_bytes(payload);
}

void send_failure(const std::exception& error) noexcept {
  try {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    std::string message =
        c10_error != nullptr ? c10_error->what_without_backtrace()
                             : error.what();
    auto header = make_header();
    auto* fields = header.mutable_data_ptr<int64_t>();
    fields[kStatus] = kFailure;
    fields[kRows] = static_cast<int64_t>(message.size());
    communicator().broadcast(header, /*source=*/0);
    broadcast_bytes(message);
  } catch (...) {
    // The others find out when this process ends.
  }
}

ReceivedStep receive_step() {
  auto header = make_header();
  communicator().broadcast(header, /*source=*/0);
  const auto* fields = header.const_data_ptr<int64_t>();
  if (fields[kStatus] == kFailure) {
    std::string message(static_cast<size_t>(fields[kRows]), '\0');
    broadcast_bytes(message);
    TORCH_CHECK(
        false,
        "accel: process 0, which reads the data for all processes, has failed: ",
        message);
  }
  ReceivedStep received;
  received.step.batch = fields[kStatus] == kBatch;
  received.step.last = fields[kLast] != 0;
  received.step.remainder = fields[kRemainder];
  received.step.rows = fields[kRows];
  std::memcpy(
      &received.step.fingerprint, &fields[kFingerprint], sizeof(int64_t));
  int64_t size = fields[kGeneratorSize];
  int64_t begin = size;
  for (int64_t rank = 0; rank < communicator().size(); ++rank) {
    size += fields[kFields + rank];
    begin += rank < communicator().rank() ? fields[kFields + rank] : 0;
  }
  auto payload = at::empty({size}, at::kByte);
  if (size > 0) {
    communicator().broadcast(payload, /*source=*/0);
  }
  if (fields[kGeneratorSize] > 0) {
    set_generator(payload.narrow(0, 0, fields[kGeneratorSize]).clone());
  }
  // A copy: the parts of the others need not stay.
  received.part =
      payload.narrow(0, begin, fields[kFields + communicator().rank()])
          .clone();
  return received;
}

at::Device current_device() {
  const Runtime* runtime = Runtime::get();
  return runtime != nullptr ? runtime->state().device() : at::Device(at::kCPU);
}

void check_same_stream(const DealtStep& step) {
  int64_t fingerprint = 0;
  std::memcpy(&fingerprint, &step.fingerprint, sizeof fingerprint);
  const auto mine = at::tensor(
      {static_cast<int64_t>(step.batch), step.rows, fingerprint}, at::kLong);
  const auto all = communicator().all_gather(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* theirs = all[rank].const_data_ptr<int64_t>();
    const auto* first = all[0].const_data_ptr<int64_t>();
    TORCH_CHECK(
        std::equal(theirs, theirs + 3, first),
        "accel: processes 0 and ",
        rank,
        " have read other batches from the data set (",
        first[0] != 0 ? std::to_string(first[1]) + " samples" : "its end",
        " and ",
        theirs[0] != 0 ? std::to_string(theirs[1]) + " samples" : "its end",
        first[0] == theirs[0] && first[1] == theirs[1]
            ? ", with other content"
            : "",
        "). With dispatch_batches(false) every process reads the whole stream "
        "and keeps its part, so the data set must give all of them the same: "
        "no shuffling by the clock, no reading by several threads, no part of "
        "its own for each process. Or let process 0 read for all "
        "(dispatch_batches(true)).");
  }
}

} // namespace detail
} // namespace accel
