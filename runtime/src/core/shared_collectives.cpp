#include "core/shared_collectives.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace accel::detail {
namespace {

/// Chunks whose slots have more bytes than this in all are summed in slices,
/// one by each process: it reads all of a slice, not all of everything, for one
/// more meeting.
constexpr int64_t kSumByAll = 256 * 1024;

} // namespace

/// What the chunk in a slot belongs to.
struct SharedCollectives::Header {
  alignas(64) uint64_t fingerprint;
  std::array<int64_t, Enclosed::kCount> enclosed;
};

int64_t SharedCollectives::bytes_for(int64_t size, int64_t chunk) {
  // Per half: a slot for each, and one for the result of slices.
  return 2 * (size * static_cast<int64_t>(sizeof(Header)) + (size + 1) * chunk);
}

SharedCollectives::SharedCollectives(
    std::unique_ptr<SharedMemory> memory,
    int64_t rank,
    int64_t size,
    int64_t chunk)
    : memory_(std::move(memory)), rank_(rank), size_(size), chunk_(chunk) {}

SharedCollectives::Header& SharedCollectives::header(int64_t rank) const {
  return reinterpret_cast<Header*>(
      memory_->data())[(turn_ % 2) * size_ + rank];
}

char* SharedCollectives::slot(int64_t rank) const {
  return memory_->data() + 2 * size_ * static_cast<int64_t>(sizeof(Header)) +
      ((turn_ % 2) * (size_ + 1) + rank) * chunk_;
}

char* SharedCollectives::result() const {
  return slot(size_);
}

bool SharedCollectives::sums(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
    return false;
  }
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
      return true;
    default:
      return false;
  }
}

at::Tensor SharedCollectives::part(
    char* memory, int64_t first, int64_t count, at::ScalarType type) const {
  return at::from_blob(
      memory + first * static_cast<int64_t>(c10::elementSize(type)),
      {count},
      at::TensorOptions().dtype(type));
}

void SharedCollectives::sum(at::Tensor& tensor, const Operation& operation) {
  // Only numbers in memory: nothing that stands above LibTorch's kernels, the
  // runtime's own ones for instance, has to do with it.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  const int64_t all = tensor.numel();
  const int64_t step =
      chunk_ / static_cast<int64_t>(tensor.element_size());
  if (all == 0) {
    compare(operation);
    return;
  }
  const at::Tensor flat = part(
      static_cast<char*>(tensor.mutable_data_ptr()),
      0,
      all,
      tensor.scalar_type());
  for (int64_t begin = 0; begin < all; begin += step) {
    auto mine = flat.narrow(0, begin, std::min(step, all - begin));
    sum_chunk(mine, operation);
    ++turn_;
  }
}

void SharedCollectives::sum_chunk(
    at::Tensor& mine, const Operation& operation) {
  std::memcpy(slot(rank_), mine.const_data_ptr(), mine.nbytes());
  meet_for(operation);

  const int64_t count = mine.numel();
  if (size_ == 2 ||
      static_cast<int64_t>(mine.nbytes()) * size_ <= kSumByAll) {
    add_slots(mine, 0, count);
    return;
  }
  const int64_t begin = count * rank_ / size_;
  const int64_t end = count * (rank_ + 1) / size_;
  auto slice = part(result(), begin, end - begin, mine.scalar_type());
  add_slots(slice, begin, end - begin);
  memory_->meet();
  std::memcpy(mine.mutable_data_ptr(), result(), mine.nbytes());
}

void SharedCollectives::gather(
    const at::Tensor& tensor,
    const std::vector<at::Tensor>& outputs,
    const Operation& operation) {
  const auto all = static_cast<int64_t>(tensor.nbytes());
  if (all == 0) {
    compare(operation);
    return;
  }
  const auto* mine = static_cast<const char*>(tensor.const_data_ptr());
  for (int64_t begin = 0; begin < all; begin += chunk_) {
    const auto count = static_cast<size_t>(std::min(chunk_, all - begin));
    std::memcpy(slot(rank_), mine + begin, count);
    meet_for(operation);
    for (int64_t rank = 0; rank < size_; ++rank) {
      auto* out = static_cast<char*>(
          outputs[static_cast<size_t>(rank)].mutable_data_ptr());
      std::memcpy(out + begin, slot(rank), count);
    }
    ++turn_;
  }
}

void SharedCollectives::exchange(
    const at::Tensor& message,
    const std::vector<int64_t>& begins,
    const std::vector<at::Tensor>& outputs,
    int64_t longest,
    const Operation& operation) {
  if (longest == 0) {
    compare(operation);
    return;
  }
  const auto* mine = static_cast<const char*>(message.const_data_ptr());
  const auto bytes = static_cast<int64_t>(message.nbytes());
  for (int64_t begin = 0; begin < longest; begin += chunk_) {
    const int64_t end = begin + chunk_;
    if (begin < bytes) {
      std::memcpy(
          slot(rank_), mine + begin,
          static_cast<size_t>(std::min(end, bytes) - begin));
    }
    meet_for(operation);
    for (int64_t rank = 0; rank < size_; ++rank) {
      const auto& output = outputs[static_cast<size_t>(rank)];
      const int64_t first = begins[static_cast<size_t>(rank)];
      const int64_t from = std::max(first, begin);
      const int64_t to =
          std::min(first + static_cast<int64_t>(output.nbytes()), end);
      if (from < to) {
        std::memcpy(
            static_cast<char*>(output.mutable_data_ptr()) + (from - first),
            slot(rank) + (from - begin), static_cast<size_t>(to - from));
      }
    }
    ++turn_;
  }
}

void SharedCollectives::compare(const Operation& operation) {
  meet_for(operation);
  ++turn_;
}

void SharedCollectives::meet_for(const Operation& operation) {
  auto& mine = header(rank_);
  mine.fingerprint = operation.fingerprint;
  if (operation.enclosed != nullptr) {
    mine.enclosed = operation.enclosed->numbers;
  }
  memory_->meet();
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (header(rank).fingerprint != operation.fingerprint) {
      throw_out_of_step(operation);
    }
  }
  if (operation.enclosed != nullptr && !operation.enclosed->compared) {
    auto& enclosed = *operation.enclosed;
    enclosed.compared = true;
    for (int64_t rank = 1; rank < size_; ++rank) {
      for (size_t i = 0; i < enclosed.differ.size(); ++i) {
        enclosed.differ[i] = enclosed.differ[i] ||
            header(rank).enclosed[i] != header(0).enclosed[i];
      }
    }
  }
}

/// Who differs from anybody finds a difference, so that all come here.
void SharedCollectives::throw_out_of_step(const Operation& operation) {
  ++turn_;
  const auto text = describe_with_place(operation);
  const auto count =
      std::min(text.size(), static_cast<size_t>(chunk_) - 1);
  std::memcpy(slot(rank_), text.data(), count);
  slot(rank_)[count] = '\0';
  memory_->meet();
  std::vector<std::string> operations;
  for (int64_t rank = 0; rank < size_; ++rank) {
    operations.emplace_back(
        slot(rank), ::strnlen(slot(rank), static_cast<size_t>(chunk_)));
  }
  ++turn_;
  throw OutOfStep(describe_out_of_step(operations, operation.group));
}

void SharedCollectives::add_slots(at::Tensor& out, int64_t first, int64_t count) const {
  const auto type = out.scalar_type();
  at::add_out(
      out, part(slot(0), first, count, type), part(slot(1), first, count, type));
  for (int64_t rank = 2; rank < size_; ++rank) {
    out.add_(part(slot(rank), first, count, type));
  }
}

} // namespace accel::detail
