#include "core/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>

namespace accel::detail {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string answer_key(int64_t question, int64_t rank) {
  return "answer/" + std::to_string(question) + "/" + std::to_string(rank);
}

} // namespace

std::string watchdog_ended_key(int64_t rank) {
  return "ended/" + std::to_string(rank);
}

/// What the thread works on; it may outlive the Watchdog where the store does
/// not answer.
class Watchdog::Loop {
 public:
  Loop(
      const Options& options,
      c10::intrusive_ptr<c10d::Store> store,
      std::shared_ptr<OperationLog> log,
      std::function<void()> give_up)
      : options_(options),
        // Not so often that it costs anything, but several times within the
        // timeout.
        pause_(std::clamp<milliseconds>(
            options.stall_timeout / 8,
            milliseconds(50),
            milliseconds(1000))),
        store_(std::move(store)),
        log_(std::move(log)),
        give_up_(std::move(give_up)),
        warning_pause_(options.stall_timeout) {}

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_ && verdict_.empty()) {
      lock.unlock();
      bool reached = true;
      try {
        look();
      } catch (const std::exception&) {
        reached = false;
      }
      lock.lock();
      if (!reached) {
        break; // Process 0 is gone; the operations tell.
      }
      changed_.wait_for(lock, pause_, [this] { return stop_; });
    }
    finished_ = true;
    changed_.notify_all();
  }

  /// Returns whether the thread has come to its end.
  bool stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    return changed_.wait_for(
        lock, std::chrono::seconds(3), [this] { return finished_; });
  }

  std::string verdict() {
    std::unique_lock<std::mutex> lock(mutex_);
    // Another process may have come to it a moment earlier.
    changed_.wait_for(lock, std::chrono::seconds(1), [this] {
      return !judging_ || !verdict_.empty();
    });
    return verdict_;
  }

 private:
  bool stopped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stop_;
  }

  void look() {
    const int64_t asked = store_->add(kWatchdogQuestions, 0);
    if (asked > questions_) {
      questions_ = asked;
      const Judging judging(*this);
      const std::string text = log_->status().to_text();
      store_->set(
          answer_key(asked, options_.rank),
          std::vector<uint8_t>(text.begin(), text.end()));
      judge(ask(asked));
    }
    const auto since = log_->waiting_since();
    const auto now = Clock::now();
    if (since && now - *since >= options_.stall_timeout &&
        now >= next_question_) {
      next_question_ = now + options_.stall_timeout / 2;
      store_->add(kWatchdogQuestions, 1);
    }
  }

  std::vector<ProcessStatus> ask(int64_t question) {
    const auto size = static_cast<size_t>(options_.world_size);
    std::vector<ProcessStatus> processes(size);
    // They look once in each pause, and need some time for their call site.
    const auto deadline = Clock::now() + 2 * pause_ + milliseconds(1500);
    while (true) {
      bool complete = true;
      for (size_t rank = 0; rank < size; ++rank) {
        if (processes[rank].kind != ProcessStatus::Kind::kSilent) {
          continue;
        }
        const auto number = static_cast<int64_t>(rank);
        for (const auto& key :
             {watchdog_ended_key(number), answer_key(question, number)}) {
          if (store_->check({key})) {
            const auto bytes = store_->get(key);
            processes[rank] =
                ProcessStatus::from_text({bytes.begin(), bytes.end()});
            break;
          }
        }
        complete =
            complete && processes[rank].kind != ProcessStatus::Kind::kSilent;
      }
      if (complete || Clock::now() >= deadline || stopped()) {
        return processes;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  void judge(const std::vector<ProcessStatus>& processes) {
    const std::chrono::duration<double> timeout = options_.stall_timeout;
    if (out_of_step(processes, timeout.count() / 2)) {
      decide(
          "the processes are out of step: not all of them call the same "
          "collective operations in the same order, with equal shapes. "
          "Perhaps one is under a condition that differs between them "
          "(is_main_process()), or one has more batches than another.\n" +
          describe(processes));
      return;
    }
    // One of those that wait speaks for all.
    const auto first = std::find_if(
        processes.begin(), processes.end(), [&](const ProcessStatus& status) {
          return status.kind == ProcessStatus::Kind::kWaiting &&
              status.seconds >= timeout.count();
        });
    const auto now = Clock::now();
    if (first - processes.begin() != options_.rank || now < next_warning_) {
      return;
    }
    next_warning_ = now + warning_pause_;
    warning_pause_ *= 2;
    std::fprintf(
        stderr,
        "accel: process %d is waiting for others:\n%s\n",
        static_cast<int>(options_.rank),
        describe(processes).c_str());
  }

  void decide(const std::string& why) {
    std::unique_lock<std::mutex> lock(mutex_);
    verdict_ = why;
    changed_.notify_all();
    // Cutting the connections wakes the others: let them come to it, too, so
    // that they know why.
    changed_.wait_for(lock, milliseconds(100), [this] { return stop_; });
    if (!stop_) {
      give_up_();
    }
  }

  /// While it lives, a verdict may be about to come.
  class Judging {
   public:
    explicit Judging(Loop& loop) : loop_(loop) {
      set(true);
    }
    ~Judging() {
      set(false);
    }
    Judging(const Judging&) = delete;
    Judging& operator=(const Judging&) = delete;

   private:
    void set(bool value) {
      const std::lock_guard<std::mutex> lock(loop_.mutex_);
      loop_.judging_ = value;
      loop_.changed_.notify_all();
    }
    Loop& loop_;
  };

  const Options options_;
  const milliseconds pause_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<OperationLog> log_;
  const std::function<void()> give_up_;

  /// Questions that were asked by whomever, as far as this process knows.
  int64_t questions_ = 0;
  Clock::time_point next_question_ = Clock::now();
  Clock::time_point next_warning_ = Clock::now();
  milliseconds warning_pause_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool finished_ = false;
  bool judging_ = false;
  std::string verdict_;
};

Watchdog::Watchdog(
    const Options& options,
    c10::intrusive_ptr<c10d::Store> store,
    std::shared_ptr<OperationLog> log,
    std::function<void()> give_up)
    : loop_(std::make_shared<Loop>(
          options,
          std::move(store),
          std::move(log),
          std::move(give_up))) {
  thread_ = std::thread([loop = loop_] { loop->run(); });
}

Watchdog::~Watchdog() {
  if (loop_->stop()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::string Watchdog::verdict() const {
  return loop_->verdict();
}

} // namespace accel::detail
