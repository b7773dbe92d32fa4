#pragma once

#include <accel/checkpoint/directory.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace accel::checkpoint::test {

/// Runs `work` as `size` processes: threads that exchange texts through memory.
/// Returns the message of each one's error, empty where it had none.
inline std::vector<std::string> run_processes(
    int64_t size, const std::function<void(const Processes&)>& work) {
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> texts;
    size_t arrived = 0, round = 0;
    std::vector<std::string> result;
  } meeting;
  meeting.texts.resize(size);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Processes processes{
          rank, size, [&, rank](const std::string& text) {
            std::unique_lock<std::mutex> lock(meeting.mutex);
            meeting.texts[rank] = text;
            const size_t round = meeting.round;
            if (++meeting.arrived == meeting.texts.size()) {
              meeting.arrived = 0;
              meeting.result = meeting.texts;
              ++meeting.round;
              meeting.changed.notify_all();
            } else {
              meeting.changed.wait(
                  lock, [&] { return meeting.round != round; });
            }
            return meeting.result;
          }};
      errors[rank] = error_of([&] { work(processes); });
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return errors;
}

} // namespace accel::checkpoint::test
