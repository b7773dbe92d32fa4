#pragma once

#include "core/operation_log.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace accel::detail {

/// Looks from a thread of its own at whether this process gets on, and asks
/// the others where they are when it does not.
///
/// Where the processes are out of step waiting is useless: on each of them
/// `verdict` has the reason, and `give_up` is called, which is to end the
/// operations that are waited for. Where a
/// process is only slow, the first of those that wait says so on standard
/// error, and everybody goes on waiting.
class Watchdog {
 public:
  struct Options {
    int64_t rank;
    int64_t world_size;
    /// How long a process may wait in an operation before the others are
    /// asked. Positive.
    std::chrono::milliseconds stall_timeout;
  };

  /// `store` is not used by anybody else: its calls block.
  Watchdog(
      const Options& options,
      c10::intrusive_ptr<c10d::Store> store,
      std::shared_ptr<OperationLog> log,
      std::function<void()> give_up);
  /// `give_up` is not called any more.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Why the connections were cut; empty where they were not. Waits up to a
  /// second where the others are just being asked.
  std::string verdict() const;

 private:
  class Loop;

  std::shared_ptr<Loop> loop_;
  std::thread thread_;
};

/// The keys that watchdogs use, for who speaks in their place: the number of
/// questions that were asked, and what a process that has ended was doing.
constexpr const char* kWatchdogQuestions = "questions";
std::string watchdog_ended_key(int64_t rank);

} // namespace accel::detail
