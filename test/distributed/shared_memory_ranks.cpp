#include "shared_memory_ranks.h"

#include <ATen/ATen.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <thread>

namespace accel::distributed::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits a little, at first awake: there may be more ranks than cores, and what all
/// of them wait for is computed by one. Who calls it looks whether it has to go on.
void wait_while(
    const std::atomic<uint32_t>& round, uint32_t before, Clock::time_point start) {
  if (Clock::now() < start + std::chrono::microseconds(50)) {
    std::this_thread::yield();
    return;
  }
  const timespec most{0, 20'000'000};
  ::syscall(SYS_futex, &round, FUTEX_WAIT, before, &most, nullptr, 0);
}

void begin_next(std::atomic<uint32_t>& round) {
  ++round;
  ::syscall(SYS_futex, &round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

} // namespace

void SharedRanks::note_failure(int kind, const char* what) {
  int none = 0;
  if (failure.compare_exchange_strong(none, 1)) {
    std::strncpy(message, what, sizeof message - 1);
    failure = kind;
  }
}

bool SharedRanks::control_barrier(int64_t size, std::chrono::seconds patience) {
  const uint32_t before = control_round;
  if (++control_arrived == size) {
    control_arrived = 0;
    begin_next(control_round);
    return true;
  }
  const auto start = Clock::now();
  while (control_round == before) {
    if (Clock::now() >= start + patience) {
      return false;
    }
    wait_while(control_round, before, start);
  }
  return true;
}

SharedRanks& shared_ranks(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT, 0600);
  TORCH_CHECK(
      descriptor >= 0 && ::ftruncate(descriptor, sizeof(SharedRanks)) == 0,
      "accel: the file '", file, "' cannot be made");
  void* memory = ::mmap(
      nullptr, sizeof(SharedRanks), PROT_READ | PROT_WRITE, MAP_SHARED,
      descriptor, 0);
  TORCH_CHECK(
      memory != MAP_FAILED, "accel: no memory for the file '", file, "'");
  ::close(descriptor);
  return *static_cast<SharedRanks*>(memory);
}

std::vector<at::Tensor> SharedMemoryCommunicator::all_gather(
    const at::Tensor& tensor) {
  const auto source = tensor.cpu().contiguous();
  auto& own = shared_.slots[rank()];
  TORCH_CHECK(
      source.dim() <= 16, "too many dimensions for the test's communicator: ",
      source.sizes());
  own.bytes = static_cast<int64_t>(source.nbytes());
  own.dtype = static_cast<int32_t>(source.scalar_type());
  own.dims = static_cast<int32_t>(source.dim());
  std::copy(source.sizes().begin(), source.sizes().end(), own.sizes);
  std::vector<at::Tensor> all;
  for (int64_t r = 0; r < size(); ++r) {
    all.push_back(at::empty(source.sizes(), source.options()));
  }
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  int64_t begin = 0;
  do {
    const int64_t piece = std::min(own.bytes - begin, SharedRanks::kSlot);
    if (piece > 0) {
      std::memcpy(own.data, from + begin, piece);
    }
    meet();
    for (int64_t r = 0; r < size(); ++r) {
      const auto& slot = shared_.slots[r];
      TORCH_CHECK(
          slot.dtype == own.dtype &&
              c10::IntArrayRef(slot.sizes, slot.dims) == source.sizes(),
          "ranks met with tensors of different sizes or dtypes");
      if (piece > 0) {
        std::memcpy(
            static_cast<char*>(all[r].mutable_data_ptr()) + begin, slot.data,
            piece);
      }
    }
    meet();
    begin += piece;
  } while (begin < own.bytes);
  for (auto& other : all) {
    other = other.to(tensor.device());
  }
  return all;
}

void SharedMemoryCommunicator::meet() {
  const uint32_t round = shared_.round;
  if (++shared_.arrived == size()) {
    shared_.arrived = 0;
    begin_next(shared_.round);
    return;
  }
  const auto start = Clock::now();
  while (shared_.round == round) {
    // A rank that ends has completed this round before, if it took part.
    TORCH_CHECK(
        !shared_.stopped || shared_.round != round,
        "another rank has ended, and this one still communicates");
    TORCH_CHECK(
        Clock::now() < start + patience_,
        "ranks wait for each other in different places");
    wait_while(shared_.round, round, start);
  }
}

} // namespace accel::distributed::test
