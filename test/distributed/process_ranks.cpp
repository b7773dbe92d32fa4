#include "process_ranks.h"

#include "compare.h"
#include "distributed/axis.h"
#include "distributed/part.h"
#include "shared_memory_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace accel::distributed::test {
namespace {

[[noreturn]] void child(
    SharedRanks& shared,
    int64_t rank,
    int64_t world,
    int64_t mesh,
    const std::function<void(const DeviceMesh&)>& body) {
  at::set_num_threads(1);
  SharedMemoryCommunicator communicator(shared, rank, world);
  try {
    body(DeviceMesh({new Axis(&communicator, mesh, 0, "axis0")}));
  } catch (const Difference& difference) {
    shared.note_failure(3, difference.what());
  } catch (const c10::Error& error) {
    shared.note_failure(2, error.what_without_backtrace());
  } catch (const std::exception& error) {
    shared.note_failure(2, error.what());
  }
  shared.stopped = true;
  std::_Exit(0);
}

} // namespace

void as_processes(
    int64_t world,
    const std::function<void(const DeviceMesh&)>& body) {
  constexpr int64_t most = SharedRanks::kRanks;
  TORCH_CHECK(world <= most, "at most ", most, " processes");
  static int64_t meshes = 1000000;
  const int64_t mesh = meshes++;
  void* memory = ::mmap(
      nullptr, sizeof(SharedRanks), PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "no memory to share with the processes");
  auto& shared = *static_cast<SharedRanks*>(memory);
  // What the first distributed tensor of a process enters into LibTorch's tables, of
  // all operators: each of the many processes would do it again, in copies of them.
  install();
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
  ::munmap(memory, sizeof(SharedRanks));
  if (crashed || failure == 2) {
    throw std::runtime_error(message);
  }
  if (failure == 3) {
    throw Difference(message);
  }
}

} // namespace accel::distributed::test
