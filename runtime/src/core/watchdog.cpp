#include "core/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

namespace accel::detail {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// The reason that was found first.
constexpr const char* kVerdict = "verdict";
/// How many processes know it.
constexpr const char* kLearned = "learned";
/// How long it is waited for those who have not learned it.
constexpr auto kLearning = std::chrono::seconds(5);

std::string status_key(int64_t rank) {
  return "status/" + std::to_string(rank);
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Whether all who wait have done so since they said the earlier.
bool waits_last(
    const std::vector<ProcessStatus>& earlier,
    const std::vector<ProcessStatus>& now) {
  using Kind = ProcessStatus::Kind;
  for (size_t rank = 0; rank < now.size(); ++rank) {
    if (now[rank].kind == Kind::kWaiting &&
        (earlier[rank].kind != Kind::kWaiting ||
         earlier[rank].wait != now[rank].wait)) {
      return false;
    }
  }
  return true;
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
        // They look once in each pause, and need some time for their call site.
        patience_(2 * pause_ + milliseconds(1500)),
        store_(std::move(store)),
        log_(std::move(log)),
        give_up_(std::move(give_up)),
        warning_pause_(options.stall_timeout) {}

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_ && verdict_.empty()) {
      looking_ = true;
      hurried_ = false;
      lock.unlock();
      bool reached = true;
      try {
        look();
      } catch (const std::exception&) {
        reached = false;
      }
      lock.lock();
      looking_ = false;
      judging_ = question_ != 0;
      ++looks_;
      if (!reached) {
        break; // Process 0 is gone; the operations tell.
      }
      changed_.notify_all();
      // Who waits for answers looks more often, but not so often that many
      // processes are too much for the store.
      const auto pause = judging_ && Clock::now() < late_
          ? std::min(pause_, milliseconds(20 + options_.world_size))
          : pause_;
      changed_.wait_for(lock, pause, [this] { return stop_ || hurried_; });
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
    // Another process may have come to it a moment earlier: it takes a look that
    // begins now.
    const auto enough = looks_ + (looking_ ? 2 : 1);
    hurried_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(1), [&] {
      return finished_ || !verdict_.empty() || (looks_ >= enough && !judging_);
    });
    return verdict_;
  }

  bool has_verdict() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !verdict_.empty();
  }

 private:
  bool stopped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stop_;
  }

  void look() {
    hear();
    const auto since = log_->waiting_since();
    const auto now = Clock::now();
    const bool waits_long = since && now - *since >= options_.stall_timeout;
    if (question_ == 0 && waits_long && now >= next_question_) {
      ask();
    }
    if (question_ != 0 && !has_verdict()) {
      judge(waits_long);
    }
  }

  /// Answers what was asked since the last time, by whomever.
  void hear() {
    const int64_t asked = store_->add(kWatchdogQuestions, 0);
    if (asked == heard_) {
      return;
    }
    heard_ = asked;
    if (store_->check({kVerdict})) {
      const auto bytes = store_->get(kVerdict);
      learn({bytes.begin(), bytes.end()});
      return;
    }
    auto status = log_->status();
    status.question = asked;
    store_->set(status_key(options_.rank), bytes_of(status.to_text()));
    if (question_ == 0) {
      open(asked);
    }
  }

  /// Asks all, this process too: what they say from now on counts.
  void ask() {
    open(store_->add(kWatchdogQuestions, 1));
    hear();
  }

  void open(int64_t question) {
    question_ = question;
    late_ = Clock::now() + patience_;
  }

  void close() {
    question_ = 0;
    suspicion_.clear();
  }

  /// What the processes have said since the open question was asked.
  std::vector<ProcessStatus> answers() {
    std::vector<std::string> keys;
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < options_.world_size; ++rank) {
      keys.push_back(status_key(rank));
      ranks.push_back(rank);
    }
    if (!store_->check(keys)) {
      // Some have never been asked, or have not come to it yet.
      keys.clear();
      ranks.clear();
      for (int64_t rank = 0; rank < options_.world_size; ++rank) {
        if (store_->check({status_key(rank)})) {
          keys.push_back(status_key(rank));
          ranks.push_back(rank);
        }
      }
    }
    std::vector<ProcessStatus> processes(
        static_cast<size_t>(options_.world_size));
    if (!keys.empty()) {
      const auto texts = store_->multiGet(keys);
      for (size_t i = 0; i < texts.size(); ++i) {
        auto status =
            ProcessStatus::from_text({texts[i].begin(), texts[i].end()});
        if (status.question >= question_) {
          processes[static_cast<size_t>(ranks[i])] = std::move(status);
        }
      }
    }
    for (int64_t rank = 0; rank < options_.world_size; ++rank) {
      auto& process = processes[static_cast<size_t>(rank)];
      const auto ended = watchdog_ended_key(rank);
      if (process.kind == ProcessStatus::Kind::kSilent &&
          store_->check({ended})) {
        const auto bytes = store_->get(ended);
        process = ProcessStatus::from_text({bytes.begin(), bytes.end()});
      }
    }
    return processes;
  }

  void judge(bool waits_long) {
    auto processes = answers();
    const bool complete = std::none_of(
        processes.begin(), processes.end(), [](const ProcessStatus& status) {
          return status.kind == ProcessStatus::Kind::kSilent;
        });
    const auto now = Clock::now();
    if (!complete && now < late_) {
      return;
    }
    const std::chrono::duration<double> timeout = options_.stall_timeout;
    if (out_of_step(processes, timeout.count() / 2)) {
      if (!suspicion_.empty() && waits_last(suspicion_, processes)) {
        decide(
            "the processes are out of step: not all of them call the same "
            "collective operations in the same order, with equal shapes. "
            "Perhaps one is under a condition that differs between them "
            "(is_main_process()), or one has more batches than another.\n" +
            describe(processes));
      } else {
        suspicion_ = std::move(processes);
        ask();
      }
      return;
    }
    warn(processes, now);
    suspicion_.clear();
    next_question_ = now + options_.stall_timeout / 2;
    if (complete || !waits_long) {
      close();
    } else {
      // Who is silent may answer yet: the question stays. The others say meanwhile
      // where they have come to.
      late_ = now + std::max(patience_, options_.stall_timeout / 2);
      store_->add(kWatchdogQuestions, 1);
    }
  }

  /// One of those that wait speaks for all.
  void warn(const std::vector<ProcessStatus>& processes, Clock::time_point now) {
    const std::chrono::duration<double> timeout = options_.stall_timeout;
    const auto first = std::find_if(
        processes.begin(), processes.end(), [&](const ProcessStatus& status) {
          return status.kind == ProcessStatus::Kind::kWaiting &&
              status.seconds >= timeout.count();
        });
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

  /// The first reason is everybody's.
  void decide(const std::string& why) {
    const auto first = store_->compareSet(kVerdict, {}, bytes_of(why));
    store_->add(kWatchdogQuestions, 1);
    learn({first.begin(), first.end()});
  }

  void learn(const std::string& why) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      verdict_ = why;
      changed_.notify_all();
    }
    // Cutting the connections wakes the others, and the store ends with process
    // 0: let all learn it before.
    try {
      const auto deadline = Clock::now() + kLearning;
      int64_t know = store_->add(kLearned, 1);
      while (know < options_.world_size && Clock::now() < deadline &&
             !stopped()) {
        std::this_thread::sleep_for(milliseconds(20));
        know = store_->add(kLearned, 0);
      }
    } catch (const std::exception&) {
      // Process 0 has ended, so it has cut its connections.
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_) {
      give_up_();
    }
  }

  const Options options_;
  const milliseconds pause_;
  const milliseconds patience_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<OperationLog> log_;
  const std::function<void()> give_up_;

  /// The newest question that this process has answered.
  int64_t heard_ = 0;
  /// Whose answers it collects; 0: of none. Those to later ones do as well.
  int64_t question_ = 0;
  /// When it makes do with those that have come.
  Clock::time_point late_;
  /// Answers by which the processes are out of step, until it is known whether all
  /// was so at one moment.
  std::vector<ProcessStatus> suspicion_;
  Clock::time_point next_question_ = Clock::now();
  Clock::time_point next_warning_ = Clock::now();
  milliseconds warning_pause_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool finished_ = false;
  bool looking_ = false;
  /// The next look is not to wait for its turn.
  bool hurried_ = false;
  /// Answers are being collected: a verdict may be about to come.
  bool judging_ = false;
  int64_t looks_ = 0;
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

bool Watchdog::has_verdict() const {
  return loop_->has_verdict();
}

} // namespace accel::detail
