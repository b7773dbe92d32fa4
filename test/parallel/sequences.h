#pragma once

#include "training.h"

#include <cstdlib>

// Models of sequences, trained on some lengths by one process and by several.

namespace accel::test {

/// A number in the environment of a run; 1 where there is none.
inline int64_t size_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? int64_t{1} : std::stol(value);
}

/// Words, `[samples, time]`: lengths that the processes do not divide, `even` positions,
/// one sample, one position.
inline Tensor reading(int64_t i, int64_t even) {
  const int64_t n = i == 2 ? 1 : 4, time = i == 3 ? 1 : i == 1 ? even : 7;
  return (torch::arange(n * time) * (i + 3) + i).remainder(11).view({n, time});
}

/// Losses of four steps of learning the next word; `run` is null in the plain program.
template <typename Net, typename Forward>
std::vector<double> losses_of_reading(
    Accelerator* run,
    const std::shared_ptr<Net>& net,
    optim::Optimizer& optimizer,
    int64_t even,
    const Forward& forward) {
  std::vector<double> losses;
  torch::manual_seed(8);
  for (int64_t i = 0; i < 4; ++i) {
    auto words = reading(i, even);
    auto next = (words * 3 + 1).remainder(11);
    if (run != nullptr) {
      words = run->distribute(words);
      next = run->distribute(next);
    }
    losses.push_back(clipped_step(run, *net, optimizer, 0.7, [&] {
      return torch::cross_entropy_loss(
          forward(net, words).flatten(0, 1), next.flatten());
    }));
  }
  return losses;
}

} // namespace accel::test
