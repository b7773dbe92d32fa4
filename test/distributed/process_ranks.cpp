#include "process_ranks.h"

#include "compare.h"
#include "distributed/axis.h"

#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

namespace accel::distributed::test {
namespace {

constexpr int64_t kSlot = 8 << 20;
constexpr int64_t kRanks = 8;

/// What all processes see.
struct Shared {
  std::atomic<int64_t> arrived;
  std::atomic<int64_t> round;
  std::atomic<bool> stopped;
  /// 0: none yet, 1: being written, 2: an error, 3: a difference.
  std::atomic<int> failure;
  char message[4000];
  struct Slot {
    int64_t bytes;
    int32_t dtype;
    int32_t dims;
    int64_t sizes[16];
    char data[kSlot];
  } slots[kRanks];
};

class ProcessCommunicator final : public accel::detail::Communicator {
 public:
  ProcessCommunicator(Shared& shared, int64_t rank, int64_t size)
      : shared_(shared), rank_(rank), size_(size) {}

  int64_t rank() const override {
    return rank_;
  }
  int64_t size() const override {
    return size_;
  }
  void all_reduce(at::Tensor& tensor) override {
    auto all = all_gather(tensor);
    auto sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) {
      sum = sum + all[i];
    }
    tensor.copy_(sum);
  }
  Waiter all_reduce_async(at::Tensor& tensor) override {
    all_reduce(tensor);
    return [] {};
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    const auto source = tensor.contiguous();
    auto& own = shared_.slots[rank_];
    TORCH_CHECK(
        static_cast<int64_t>(source.nbytes()) <= kSlot && source.dim() <= 16,
        "too large a tensor for the test's communicator: ", source.sizes());
    own.bytes = static_cast<int64_t>(source.nbytes());
    own.dtype = static_cast<int32_t>(source.scalar_type());
    own.dims = static_cast<int32_t>(source.dim());
    std::copy(source.sizes().begin(), source.sizes().end(), own.sizes);
    if (own.bytes > 0) {
      std::memcpy(own.data, source.const_data_ptr(), own.bytes);
    }
    meet();
    std::vector<at::Tensor> all;
    for (int64_t r = 0; r < size_; ++r) {
      const auto& slot = shared_.slots[r];
      TORCH_CHECK(
          slot.dtype == own.dtype &&
              c10::IntArrayRef(slot.sizes, slot.dims) == source.sizes(),
          "ranks met with tensors of different sizes or dtypes");
      auto copy = at::empty(source.sizes(), source.options());
      if (slot.bytes > 0) {
        std::memcpy(copy.mutable_data_ptr(), slot.data, slot.bytes);
      }
      all.push_back(std::move(copy));
    }
    meet();
    return all;
  }
  void broadcast(at::Tensor& tensor, int64_t source) override {
    tensor.copy_(all_gather(tensor)[source]);
  }
  void barrier() override {
    meet();
  }

 private:
  void meet() {
    const int64_t round = shared_.round;
    if (++shared_.arrived == size_) {
      shared_.arrived = 0;
      ++shared_.round;
      return;
    }
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (shared_.round == round) {
      // A rank that ends has completed this round before, if it took part.
      TORCH_CHECK(
          !shared_.stopped || shared_.round != round,
          "another rank has ended, and this one still communicates");
      TORCH_CHECK(
          std::chrono::steady_clock::now() < deadline,
          "ranks wait for each other in different places");
      std::this_thread::yield();
    }
  }

  Shared& shared_;
  int64_t rank_;
  int64_t size_;
};

void note_failure(Shared& shared, int kind, const char* message) {
  int none = 0;
  if (shared.failure.compare_exchange_strong(none, 1)) {
    std::strncpy(shared.message, message, sizeof shared.message - 1);
    shared.failure = kind;
  }
}

[[noreturn]] void child(
    Shared& shared,
    int64_t rank,
    int64_t world,
    int64_t mesh,
    const std::function<void(const DeviceMesh&)>& body) {
  at::set_num_threads(1);
  ProcessCommunicator communicator(shared, rank, world);
  try {
    body(DeviceMesh({new Axis(&communicator, mesh, 0, "axis0")}));
  } catch (const Difference& difference) {
    note_failure(shared, 3, difference.what());
  } catch (const c10::Error& error) {
    note_failure(shared, 2, error.what_without_backtrace());
  } catch (const std::exception& error) {
    note_failure(shared, 2, error.what());
  }
  shared.stopped = true;
  std::_Exit(0);
}

} // namespace

void as_processes(
    int64_t world,
    const std::function<void(const DeviceMesh&)>& body) {
  TORCH_CHECK(world <= kRanks, "at most ", kRanks, " processes");
  static int64_t meshes = 1000000;
  const int64_t mesh = meshes++;
  void* memory = ::mmap(
      nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "no memory to share with the processes");
  auto& shared = *static_cast<Shared*>(memory);
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < world; ++rank) {
    const pid_t pid = ::fork();
    TORCH_CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
      child(shared, rank, world, mesh, body);
    }
    children.push_back(pid);
  }
  bool crashed = false;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    crashed = crashed || !WIFEXITED(status);
    shared.stopped = shared.stopped || crashed;
  }
  const int failure = shared.failure;
  const std::string message =
      crashed ? "a process has crashed" : std::string(shared.message);
  ::munmap(memory, sizeof(Shared));
  if (crashed || failure == 2) {
    throw std::runtime_error(message);
  }
  if (failure == 3) {
    throw Difference(message);
  }
}

} // namespace accel::distributed::test
