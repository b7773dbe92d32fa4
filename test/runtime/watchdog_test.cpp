// The watchdogs of several processes, each with a log of its own, over one store
// that makes answers come as late, and questions as badly, as it gets.

#include "core/operation_log.h"
#include "core/watchdog.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using accel::detail::Channel;
using accel::detail::kWatchdogQuestions;
using accel::detail::OperationLog;
using accel::detail::ProcessStatus;
using accel::detail::Watchdog;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

/// A process's own way to the common store.
class Way : public c10d::Store {
 public:
  explicit Way(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8 // before, stores have none
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<Way>(store_);
  }
#endif
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->set(key, value);
  }
  std::vector<uint8_t> compareSet(
      const std::string& key,
      const std::vector<uint8_t>& expected,
      const std::vector<uint8_t>& desired) override {
    return store_->compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    return store_->get(key);
  }
  int64_t add(const std::string& key, int64_t value) override {
    return store_->add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    return store_->deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    return store_->check(keys);
  }
  int64_t getNumKeys() override {
    return store_->getNumKeys();
  }
  void wait(const std::vector<std::string>& keys) override {
    store_->wait(keys);
  }
  void wait(
      const std::vector<std::string>& keys, const milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }
  std::vector<std::vector<uint8_t>> multiGet(
      const std::vector<std::string>& keys) override {
    return store_->multiGet(keys);
  }

 protected:
  const c10::intrusive_ptr<c10d::Store> store_;
};

/// Who comes by it always hears of a question later than the others: another one
/// is asked whenever there is one.
class Later : public Way {
 public:
  using Way::Way;
  int64_t add(const std::string& key, int64_t value) override {
    auto count = Way::add(key, value);
    if (key == kWatchdogQuestions && value == 0 && count > seen_) {
      count = Way::add(key, 1);
      seen_ = count;
    }
    return count;
  }

 private:
  int64_t seen_ = 0;
};

/// Each answer takes longer than the others have patience.
class Slow : public Way {
 public:
  using Way::Way;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    std::this_thread::sleep_for(milliseconds(2000));
    Way::set(key, value);
  }
};

/// A process: what it waits in, and its watchdog.
struct Process {
  std::shared_ptr<OperationLog> log = std::make_shared<OperationLog>();
  std::unique_ptr<OperationLog::Waiting> waiting;
  std::atomic<bool> given_up{false};
  std::unique_ptr<Watchdog> watchdog;

  void wait_in(const char* name) {
    waiting.reset();
    waiting = std::make_unique<OperationLog::Waiting>(
        *log, log->begin(Channel::kOperators, nullptr, name, torch::Tensor()));
  }
  /// Waits in another channel.
  void wait_elsewhere() {
    waiting.reset();
    waiting = std::make_unique<OperationLog::Waiting>(
        *log, log->begin(Channel::kGradients, nullptr, "all_reduce", torch::Tensor()));
  }
};

using Processes = std::vector<std::unique_ptr<Process>>;
using WayOf =
    std::function<c10::intrusive_ptr<c10d::Store>(int, c10::intrusive_ptr<c10d::Store>)>;

Processes start(int count, const WayOf& way_of) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Processes processes;
  for (int rank = 0; rank < count; ++rank) {
    processes.push_back(std::make_unique<Process>());
    auto& process = *processes.back();
    process.watchdog = std::make_unique<Watchdog>(
        Watchdog::Options{rank, count, seconds(1)},
        way_of(rank, store),
        process.log,
        [&process] { process.given_up = true; });
  }
  return processes;
}

c10::intrusive_ptr<c10d::Store> plain(int, c10::intrusive_ptr<c10d::Store> store) {
  return store;
}

bool all_give_up_within(const Processes& processes, milliseconds time) {
  const auto deadline = steady_clock::now() + time;
  for (const auto& process : processes) {
    while (!process->given_up) {
      if (steady_clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  return true;
}

void expect_one_verdict(const Processes& processes) {
  const auto first = processes[0]->watchdog->verdict();
  EXPECT_NE(first.find("the processes are out of step"), std::string::npos) << first;
  for (const auto& process : processes) {
    EXPECT_EQ(process->watchdog->verdict(), first);
  }
}

} // namespace

TEST(Watchdog, QuestionsThatCrossDoNotHinderADecision) {
  const auto processes = start(4, [](int rank, auto store) {
    return rank % 2 == 0 ? store
                         : c10::intrusive_ptr<c10d::Store>(
                               c10::make_intrusive<Later>(std::move(store)));
  });
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    if (rank == 1) {
      processes[rank]->wait_elsewhere();
    } else {
      processes[rank]->wait_in("all_gather");
    }
  }
  ASSERT_TRUE(all_give_up_within(processes, seconds(20)));
  expect_one_verdict(processes);
}

TEST(Watchdog, ASlowAnswerDelaysADecisionOnly) {
  const auto processes = start(3, [](int rank, auto store) {
    return rank != 1 ? store
                     : c10::intrusive_ptr<c10d::Store>(
                           c10::make_intrusive<Slow>(std::move(store)));
  });
  processes[0]->wait_in("all_gather");
  processes[1]->wait_elsewhere();
  processes[2]->wait_in("all_gather");
  ASSERT_TRUE(all_give_up_within(processes, seconds(40)));
  expect_one_verdict(processes);
}

// Nobody is left out where process 0, whose store it may be, decides first.
TEST(Watchdog, WhoOnlyComputesLearnsTheVerdictToo) {
  const auto processes = start(3, plain);
  processes[0]->wait_in("all_gather");
  processes[1]->wait_in("broadcast");
  ASSERT_TRUE(all_give_up_within(processes, seconds(20)));
  expect_one_verdict(processes);
  EXPECT_NE(
      processes[2]->watchdog->verdict().find("process 2 computes"),
      std::string::npos);
}

// What process 1 says of the first operation arrives when it has long been over,
// and process 0 waits in the next one: together that looks like a standstill.
TEST(Watchdog, AnAnswerThatIsNotTrueAnyMoreIsNoDecision) {
  const auto processes = start(2, [](int rank, auto store) {
    return rank != 1 ? store
                     : c10::intrusive_ptr<c10d::Store>(
                           c10::make_intrusive<Slow>(std::move(store)));
  });
  processes[1]->wait_in("all_gather");
  std::this_thread::sleep_for(milliseconds(1500)); // it has asked, and is answering
  processes[0]->wait_in("all_gather");
  processes[1]->waiting.reset();
  processes[0]->wait_in("all_gather");
  std::this_thread::sleep_for(milliseconds(4000));
  for (const auto& process : processes) {
    EXPECT_EQ(process->watchdog->verdict(), "");
    EXPECT_FALSE(process->given_up);
  }
}
