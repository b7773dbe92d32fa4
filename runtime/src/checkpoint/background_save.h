#pragma once

#include "checkpoint/state_files.h"
#include "checkpoint/unfinished.h"

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accel::checkpoint {

/// How the threads that save reach each other: beside the processes' other
/// connections, whose operations the program calls in an order of its own.
/// Gives every process the texts of all, by rank. Throws where `cancelled`
/// becomes true meanwhile.
using ExchangeBeside = std::function<std::vector<std::string>(
    const std::string& text,
    const std::atomic<bool>& cancelled)>;

/// A checkpoint that is written on a thread of its own while the program goes
/// on. What is written is what the state was when it began: tensors are copied
/// to host memory, so that a save needs as much of it as the files have bytes.
///
/// The checkpoint becomes complete by itself when the files of all processes
/// are on the disk; nobody has to ask for it.
class BackgroundSave {
 public:
  /// Makes the directory, calls `state.before_save`, copies, and starts the
  /// thread. Every process calls it; throws on all of them where that fails on
  /// one. `afterwards` runs on the thread when the checkpoint is complete.
  BackgroundSave(
      const std::string& directory,
      const TrainingState& state,
      const Processes& processes,
      Sync sync,
      ExchangeBeside exchange,
      std::function<void(const Processes&)> afterwards);
  /// Waits for the thread, which gives up where it waits for other processes
  /// and before its next file; what it has written is removed then.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// The checkpoint is complete, or has failed.
  bool done() const {
    return done_.load(std::memory_order_acquire);
  }
  /// Waits until it is done; throws where it has failed, with the same message
  /// on every process. To be called once.
  void finish();

 private:
  void run() noexcept;
  void write();

  UnfinishedCheckpoint unfinished_;
  Processes processes_;
  std::function<void(const Processes&)> afterwards_;
  StateFiles files_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> done_{false};
  std::exception_ptr error_;
  std::thread thread_;
};

} // namespace accel::checkpoint
