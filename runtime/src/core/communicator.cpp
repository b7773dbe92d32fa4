#include <accel/detail/communicator.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace accel::detail {

std::vector<at::Tensor> Communicator::all_to_all(const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  auto padded = at::zeros({exchange.longest}, exchange.message.options());
  padded.narrow(0, 0, exchange.message.numel()).copy_(exchange.message);
  auto received = all_gather(padded);
  for (size_t rank = 0; rank < received.size(); ++rank) {
    received[rank] =
        received[rank]
            .narrow(0, exchange.begins[rank], exchange.counts[rank])
            .clone();
  }
  return received;
}

void Communicator::gather_pieces(const GatheredPieces& gathered) {
  const at::NoGradGuard no_grad;
  const size_t n = gathered.pieces.size();
  std::vector<at::Tensor> mine;
  for (const auto& piece : gathered.pieces) {
    mine.push_back(
        piece.detach().as_strided({piece.numel()}, {1}).view(at::kByte));
  }
  int64_t longest = 0;
  for (int64_t rank = 0; rank < size(); ++rank) {
    const auto* counts = gathered.counts.data() + rank * n;
    longest = std::max(
        longest, std::accumulate(counts, counts + n, int64_t{0}));
  }
  auto message = at::zeros({longest}, gathered.whole.options());
  int64_t at = 0;
  for (const auto& piece : mine) {
    message.narrow(0, at, piece.numel()).copy_(piece);
    at += piece.numel();
  }
  const auto messages = all_gather(message);
  for (int64_t rank = 0; rank < size(); ++rank) {
    at = 0;
    for (size_t k = 0; k < n; ++k) {
      const int64_t count = gathered.counts[rank * n + k];
      gathered.whole.narrow(0, gathered.begins[rank * n + k], count)
          .copy_(messages[rank].narrow(0, at, count));
      at += count;
    }
  }
}

} // namespace accel::detail
