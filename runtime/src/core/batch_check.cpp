#include "core/batch_check.h"

#include "checkpoint/xxh64.h"

#include <accel/utils/environment.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::detail {
namespace {

/// Of a tensor that is larger than all pieces together, this much is looked at:
/// batches that differ do so nearly everywhere.
constexpr int64_t kPieces = 64;
constexpr int64_t kPieceBytes = 4096;

void add_content(checkpoint::Xxh64& hash, const at::Tensor& tensor) {
  auto flat = tensor.detach().reshape(-1);
  const int64_t piece =
      std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(flat.element_size()));
  if (flat.numel() > kPieces * piece) {
    // The first and the last elements are among them.
    std::vector<at::Tensor> pieces;
    for (int64_t i = 0; i < kPieces; ++i) {
      pieces.push_back(
          flat.narrow(0, (flat.numel() - piece) * i / (kPieces - 1), piece));
    }
    flat = at::cat(pieces);
  }
  flat = flat.cpu().contiguous();
  hash.update(flat.const_data_ptr(), flat.nbytes());
}

} // namespace

bool BatchCheck::enabled() {
  static const bool on =
      parse_flag_from_env("ACCEL_CHECK_BATCHES", /*fallback=*/true);
  return on;
}

uint64_t BatchCheck::fingerprint_of(const std::vector<at::Tensor>& tensors) {
  checkpoint::Xxh64 hash;
  for (const auto& tensor : tensors) {
    const auto dtype = static_cast<int64_t>(tensor.scalar_type());
    const auto sizes = tensor.sizes();
    hash.update(&dtype, sizeof dtype);
    hash.update(sizes.data(), sizes.size() * sizeof(int64_t));
    if (tensor.layout() == at::kStrided && !tensor.is_quantized()) {
      add_content(hash, tensor);
    }
  }
  return hash.digest();
}

void BatchCheck::begin(
    Communicator& communicator,
    const std::vector<at::Tensor>& tensors,
    const char* operation,
    const CallSite& site) {
  const at::NoGradGuard no_grad;
  operation_ = operation;
  site_ = site;
  mine_ = fingerprint_of(tensors);
  int64_t bits = 0;
  std::memcpy(&bits, &mine_, sizeof bits);
  // The sum is this process's times their number on all processes, or, but for
  // one chance in 2^64, on none.
  sum_ = at::tensor({bits}, at::kLong);
  wait_ = communicator.all_reduce_async(sum_);
}

void BatchCheck::end(Communicator& communicator) {
  const auto wait = std::exchange(wait_, nullptr);
  if (!wait) {
    return;
  }
  wait();
  uint64_t sum = 0;
  std::memcpy(&sum, sum_.const_data_ptr(), sizeof sum);
  if (sum == mine_ * static_cast<uint64_t>(communicator.size())) {
    return;
  }
  int64_t bits = 0;
  std::memcpy(&bits, &mine_, sizeof bits);
  const auto all = communicator.all_gather(at::tensor({bits}, at::kLong));
  std::string others;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (!at::equal(all[rank], all[0])) {
      others += (others.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  TORCH_CHECK(
      false,
      "accel: process 0 and process ",
      others,
      " have made different batches for ",
      operation_,
      " at ",
      site_.describe(),
      ". It needs the same whole batch on all processes, of which each takes "
      "its part. Seed every generator with a constant, not with the clock or a "
      "random device, or give process 0's seed to all with "
      "accelerator.broadcast_object(seed); read the same files everywhere. "
      "Where batches differ by rounding only (other processors), "
      "ACCEL_CHECK_BATCHES=0 takes process by process what it has made.");
}

} // namespace accel::detail
