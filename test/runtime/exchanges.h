#pragma once

#include <accel/detail/communicator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

namespace accel::test {

/// Each process sends each other one as many elements as the two ranks say, a
/// multiple of `count`, to some of them none. Every process of the communicator
/// must call it.
inline void expect_exchange(
    detail::Communicator& processes,
    const torch::TensorOptions& options,
    int64_t count) {
  const int64_t rank = processes.rank();
  const int64_t world = processes.size();
  const auto sent = [&](int64_t from, int64_t to) {
    return (from + to) % 3 * count;
  };
  const auto message = [&](int64_t from) {
    int64_t all = 0;
    for (int64_t to = 0; to < world; ++to) {
      all += sent(from, to);
    }
    return torch::arange(all).add(from * 7).remainder(251).to(options);
  };
  detail::Exchange exchange;
  exchange.message = message(rank);
  std::vector<torch::Tensor> expected;
  for (int64_t other = 0; other < world; ++other) {
    exchange.sends.push_back(sent(rank, other));
    exchange.counts.push_back(sent(other, rank));
    int64_t begin = 0;
    for (int64_t to = 0; to < rank; ++to) {
      begin += sent(other, to);
    }
    exchange.begins.push_back(begin);
    const auto its = message(other);
    exchange.longest = std::max(exchange.longest, its.numel());
    expected.push_back(its.narrow(0, begin, sent(other, rank)));
  }
  const auto received = processes.all_to_all(exchange);
  ASSERT_EQ(received.size(), expected.size());
  for (int64_t other = 0; other < world; ++other) {
    EXPECT_TRUE(torch::equal(received[other], expected[other]))
        << options << " " << count << " from " << other;
  }
}

} // namespace accel::test
