#include "core/shared_sum.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::detail {
namespace {

/// Chunks whose slots have more bytes than this in all are summed in slices,
/// one by each process: it reads all of a slice, not all of everything, for one
/// more meeting.
constexpr int64_t kSumByAll = 256 * 1024;

} // namespace

/// What the chunk in a slot belongs to.
struct SharedSum::Header {
  alignas(64) int64_t numel;
  int64_t dtype;
};

int64_t SharedSum::bytes_for(int64_t size, int64_t chunk) {
  // Per half: a slot for each, and one for the result of slices.
  return 2 * (size * static_cast<int64_t>(sizeof(Header)) + (size + 1) * chunk);
}

SharedSum::SharedSum(
    std::unique_ptr<SharedMemory> memory,
    int64_t rank,
    int64_t size,
    int64_t chunk)
    : memory_(std::move(memory)), rank_(rank), size_(size), chunk_(chunk) {}

SharedSum::Header& SharedSum::header(int64_t rank) const {
  return reinterpret_cast<Header*>(
      memory_->data())[(turn_ % 2) * size_ + rank];
}

char* SharedSum::slot(int64_t rank) const {
  return memory_->data() + 2 * size_ * static_cast<int64_t>(sizeof(Header)) +
      ((turn_ % 2) * (size_ + 1) + rank) * chunk_;
}

char* SharedSum::result() const {
  return slot(size_);
}

bool SharedSum::takes(const at::Tensor& tensor) {
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

at::Tensor SharedSum::part(
    char* memory, int64_t first, int64_t count, at::ScalarType type) const {
  return at::from_blob(
      memory + first * static_cast<int64_t>(c10::elementSize(type)),
      {count},
      at::TensorOptions().dtype(type));
}

void SharedSum::sum(at::Tensor& tensor) {
  // Only numbers in memory: nothing that stands above LibTorch's kernels, the
  // runtime's own ones for instance, has to do with it.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  const int64_t all = tensor.numel();
  const int64_t step =
      chunk_ / static_cast<int64_t>(tensor.element_size());
  const at::Tensor flat = part(
      static_cast<char*>(tensor.mutable_data_ptr()),
      0,
      all,
      tensor.scalar_type());
  for (int64_t begin = 0; begin < all; begin += step) {
    auto mine = flat.narrow(0, begin, std::min(step, all - begin));
    sum_chunk(mine, all);
    ++turn_;
  }
}

void SharedSum::sum_chunk(at::Tensor& mine, int64_t all) {
  auto& about = header(rank_);
  about.numel = all;
  about.dtype = static_cast<int64_t>(mine.scalar_type());
  std::memcpy(slot(rank_), mine.const_data_ptr(), mine.nbytes());
  memory_->meet();
  check_same(mine, all);

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

void SharedSum::check_same(const at::Tensor& mine, int64_t all) const {
  for (int64_t rank = 0; rank < size_; ++rank) {
    const auto& other = header(rank);
    TORCH_CHECK(
        other.numel == all &&
            other.dtype == static_cast<int64_t>(mine.scalar_type()),
        "process ",
        rank,
        " sums ",
        other.numel,
        " elements of ",
        static_cast<at::ScalarType>(other.dtype),
        ", this process ",
        all,
        " of ",
        mine.scalar_type());
  }
}

void SharedSum::add_slots(at::Tensor& out, int64_t first, int64_t count) const {
  const auto type = out.scalar_type();
  at::add_out(
      out, part(slot(0), first, count, type), part(slot(1), first, count, type));
  for (int64_t rank = 2; rank < size_; ++rank) {
    out.add_(part(slot(rank), first, count, type));
  }
}

} // namespace accel::detail
