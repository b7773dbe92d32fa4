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
/// A question is the next number of a counter in the store. Whoever sees that it
/// has grown tells where it is, and the newest question that it has heard; it does
/// so as well while it waits for answers itself. What is said after a later
/// question answers the earlier ones, so that several who ask at the same time,
/// and one who is slow to answer, only delay what comes.
///
/// Where the processes are out of step waiting is useless. They are where what all
/// say shows it (`out_of_step`), and a second question, asked after the answers to
/// the first, finds each of them still in the same wait: so there was a moment at
/// which all of it held, whatever the clocks and however slow the answers. The first
/// who finds it puts the reason into the store, and all learn it from there; when
/// they have, `give_up` is called on each, which is to end the operations that are
/// waited for. Where a process is only slow, the first of those that wait says so
/// on standard error, and everybody goes on waiting.
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

  /// Why the connections were cut; empty where they were not. To be called where
  /// an operation has failed: looks whether another process has found a reason,
  /// and waits up to a second where the others are just being asked.
  std::string verdict() const;
  /// Whether there is one, as far as this process knows by now.
  bool has_verdict() const;

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
