#include "checkpoint/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace accel::checkpoint {

size_t copying_threads(uint64_t bytes) {
  constexpr size_t kMost = 4;
  constexpr uint64_t kWorthThreads = 32 << 20;
  if (bytes <= kWorthThreads) {
    return 1;
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const size_t count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0
      ? static_cast<size_t>(CPU_COUNT(&cores))
      : 1;
  const char* neighbours = std::getenv("LOCAL_WORLD_SIZE");
  const long processes = neighbours == nullptr ? 1 : std::atol(neighbours);
  return std::clamp<size_t>(
      count / static_cast<size_t>(std::max(processes, 1L)), 1, kMost);
}

void on_threads(
    size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next{0};
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, count); ++i) {
    try {
      others.emplace_back(take);
    } catch (const std::system_error&) {
      break; // no more threads to be had: the others do it
    }
  }
  take();
  for (auto& other : others) {
    other.join();
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

} // namespace accel::checkpoint
