#pragma once

#include "gathering_communicator.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace accel::distributed::test {

/// Memory in which processes of one host exchange tensors; zeros to begin with.
struct SharedRanks {
  static constexpr int64_t kSlot = 8 << 20;
  static constexpr int64_t kRanks = 8;

  std::atomic<int64_t> arrived;
  std::atomic<int64_t> round;
  /// A process has ended: it will meet nobody any more.
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

  /// Writes the failure down, unless there is one already.
  void note_failure(int kind, const char* what);
};

/// Processes that share memory. A tensor of any size goes through it, in pieces
/// where it is larger than a slot. Throws where processes meet with tensors of
/// different sizes or dtypes, where one has ended, and after two minutes.
class SharedMemoryCommunicator final : public GatheringCommunicator {
 public:
  SharedMemoryCommunicator(SharedRanks& shared, int64_t rank, int64_t size)
      : GatheringCommunicator(rank, size), shared_(shared) {}

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override {
    meet();
  }

 private:
  void meet();

  SharedRanks& shared_;
};

} // namespace accel::distributed::test
