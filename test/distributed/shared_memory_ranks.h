#pragma once

#include "gathering_communicator.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// Memory in which processes of one host exchange tensors; zeros to begin with.
struct SharedRanks {
  static constexpr int64_t kSlot = 8 << 20;
  static constexpr int64_t kRanks = 8;

  std::atomic<int64_t> arrived;
  std::atomic<uint32_t> round;
  /// A process has ended: it will meet nobody any more.
  std::atomic<bool> stopped;
  /// 0: none yet, 1: being written, 2: an error, 3: a difference.
  std::atomic<int> failure;
  char message[4000];

  /// Where all meet that go on behind a failure (sample_ranks.h), with counters of
  /// their own: of the meetings above some may be missing then.
  std::atomic<int64_t> control_arrived;
  std::atomic<uint32_t> control_round;
  /// Whether somebody has failed in this run; of every second run.
  std::atomic<bool> failed[2];
  /// A device does not compute any more.
  std::atomic<bool> lost;
  /// How the plain call has ended on each process; of every second call.
  std::atomic<int> plain[2][kRanks];

  struct Slot {
    int64_t bytes;
    int32_t dtype;
    int32_t dims;
    int64_t sizes[16];
    char data[kSlot];
  } slots[kRanks];

  /// Writes the failure down, unless there is one already.
  void note_failure(int kind, const char* what);

  /// Waits until all `size` processes have called it; false where one does not for
  /// too long.
  bool control_barrier(int64_t size, std::chrono::seconds patience);
};

/// The memory that processes share who name the same file, which is made where it
/// is not there yet. It must be a new one for each run.
SharedRanks& shared_ranks(const std::string& file);

/// Processes that share memory. A tensor of any size goes through it, in pieces
/// where it is larger than a slot. Throws where processes meet with tensors of
/// different sizes or dtypes, where one has ended, and after `patience`. Tensors of
/// devices go through the host's memory.
class SharedMemoryCommunicator final : public GatheringCommunicator {
 public:
  SharedMemoryCommunicator(
      SharedRanks& shared,
      int64_t rank,
      int64_t size,
      std::chrono::seconds patience = std::chrono::minutes(2))
      : GatheringCommunicator(rank, size), shared_(shared), patience_(patience) {}

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override {
    meet();
  }

 private:
  void meet();

  SharedRanks& shared_;
  std::chrono::seconds patience_;
};

} // namespace accel::distributed::test
