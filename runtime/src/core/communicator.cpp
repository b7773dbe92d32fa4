#include <accel/detail/communicator.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace accel::detail {

Communicator::Gathering Communicator::all_to_all_async(
    const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  auto padded = at::zeros({exchange.longest}, exchange.message.options());
  padded.narrow(0, 0, exchange.message.numel()).copy_(exchange.message);
  return [gather = all_gather_async(padded), begins = exchange.begins,
          counts = exchange.counts] {
    const at::NoGradGuard inner;
    auto received = gather();
    for (size_t rank = 0; rank < received.size(); ++rank) {
      received[rank] =
          received[rank].narrow(0, begins[rank], counts[rank]).clone();
    }
    return received;
  };
}

Communicator::Gathering Communicator::all_gather_async(
    const at::Tensor& tensor) {
  return [all = all_gather(tensor)] { return all; };
}

Communicator::Waiter Communicator::gather_pieces_async(
    const GatheredPieces& gathered) {
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
  return [n, processes = size(), whole = gathered.whole,
          begins = gathered.begins, counts = gathered.counts,
          gather = all_gather_async(message)] {
    const at::NoGradGuard inner;
    const auto messages = gather();
    for (int64_t rank = 0; rank < processes; ++rank) {
      int64_t from = 0;
      for (size_t k = 0; k < n; ++k) {
        const int64_t count = counts[rank * n + k];
        whole.narrow(0, begins[rank * n + k], count)
            .copy_(messages[rank].narrow(0, from, count));
        from += count;
      }
    }
  };
}

Communicator::Waiter Communicator::sum_pieces_async(
    const SummedPieces& summed) {
  const at::NoGradGuard no_grad;
  const size_t n = summed.pieces.size();
  std::vector<at::Tensor> parts;
  Exchange exchange;
  int64_t begin = 0;
  int64_t own = 0;
  for (int64_t to = 0; to < size(); ++to) {
    if (to == rank()) {
      begin = exchange.longest;
    }
    int64_t count = 0;
    for (size_t k = 0; k < n; ++k) {
      const auto& piece = summed.pieces[k];
      parts.push_back(
          piece.detach().as_strided({piece.numel()}, {1})
              .narrow(0, summed.begins[to * n + k], summed.counts[to * n + k]));
      count += summed.counts[to * n + k];
    }
    exchange.sends.push_back(count);
    exchange.longest += count;
    own = to == rank() ? count : own;
  }
  exchange.begins.assign(size(), begin);
  exchange.counts.assign(size(), own);
  exchange.message = at::cat(parts);
  return [sums = summed.sums, exchanging = all_to_all_async(exchange)] {
    const at::NoGradGuard inner;
    const auto received = exchanging();
    auto sum = received[0].clone();
    for (size_t from = 1; from < received.size(); ++from) {
      sum.add_(received[from]);
    }
    int64_t at = 0;
    for (const auto& out : sums) {
      out.detach().as_strided({out.numel()}, {1})
          .copy_(sum.narrow(0, at, out.numel()));
      at += out.numel();
    }
  };
}

} // namespace accel::detail
