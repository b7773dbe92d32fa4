#include "thread_ranks.h"

#include "gathering_communicator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

namespace accel::distributed::test {
namespace {

/// Where threads meet; one that fails makes the others throw.
class Meeting {
 public:
  explicit Meeting(int64_t size) : size_(size) {
    tensors_.fill(std::vector<at::Tensor>(size));
  }

  /// Every thread's tensor, by rank. The next round has another place for them, and
  /// the one behind it begins when all have come to the next, and so have read this.
  std::vector<at::Tensor> exchange(int64_t rank, const at::Tensor& tensor) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto& all = tensors_[round_ % 2];
    all[rank] = tensor;
    wait(lock);
    return all;
  }

  void fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
    arrived_all_.notify_all();
  }

  /// A rank has ended; it will meet nobody any more.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
    arrived_all_.notify_all();
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock) {
    const int64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      arrived_all_.notify_all();
    } else {
      const bool met = arrived_all_.wait_for(lock, kPatience, [&] {
        return round_ != round || failed_ || left_;
      });
      TORCH_CHECK(met, "ranks wait for each other in different places");
    }
    TORCH_CHECK(!failed_, "another rank has failed");
    TORCH_CHECK(
        round_ != round,
        "another rank has ended, and this one still communicates");
  }

  static constexpr std::chrono::seconds kPatience{120};

  std::mutex mutex_;
  std::condition_variable arrived_all_;
  std::array<std::vector<at::Tensor>, 2> tensors_;
  int64_t size_;
  int64_t arrived_ = 0;
  int64_t round_ = 0;
  bool failed_ = false;
  bool left_ = false;
};

class ThreadCommunicator final : public GatheringCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<Meeting> meeting, int64_t rank, int64_t size)
      : GatheringCommunicator(rank, size), meeting_(std::move(meeting)) {}

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    auto all = meeting_->exchange(rank(), tensor.clone());
    for (auto& other : all) {
      TORCH_CHECK(
          other.sizes() == tensor.sizes() &&
              other.scalar_type() == tensor.scalar_type(),
          "ranks met with tensors ", other.scalar_type(), other.sizes(),
          " and ", tensor.scalar_type(), tensor.sizes());
    }
    return all;
  }
  void barrier() override {
    meeting_->exchange(rank(), {});
  }
  void leave() {
    meeting_->leave();
  }

 private:
  std::shared_ptr<Meeting> meeting_;
};

} // namespace

void as_ranks(
    int64_t world,
    const std::function<void(const DeviceMesh&)>& body) {
  as_mesh({world}, body);
}

void as_mesh(
    const std::vector<int64_t>& sizes,
    const std::function<void(const DeviceMesh&)>& body) {
  static std::atomic<int64_t> meshes{1000};
  const int64_t mesh = meshes++;
  const int64_t world = std::accumulate(
      sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  // For each axis, one meeting for each line of processes along it.
  std::vector<std::vector<std::shared_ptr<Meeting>>> meetings(sizes.size());
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (int64_t line = 0; line < world / sizes[a]; ++line) {
      meetings[a].push_back(std::make_shared<Meeting>(sizes[a]));
    }
  }
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      // Communicators outlive the tensors that may still point to the axes.
      std::vector<std::unique_ptr<ThreadCommunicator>> communicators;
      std::vector<Axis*> axes;
      int64_t inner = world;
      for (size_t a = 0; a < sizes.size(); ++a) {
        inner /= sizes[a];
        const int64_t coordinate = rank / inner % sizes[a];
        const int64_t line = rank / (inner * sizes[a]) * inner + rank % inner;
        communicators.push_back(std::make_unique<ThreadCommunicator>(
            meetings[a][line], coordinate, sizes[a]));
        axes.push_back(new Axis(
            communicators.back().get(), mesh, static_cast<int64_t>(a),
            "axis" + std::to_string(a),
            /*further=*/static_cast<int64_t>(sizes.size() - a - 1)));
      }
      try {
        body(DeviceMesh(axes));
        for (auto& communicator : communicators) {
          communicator->leave();
        }
      } catch (...) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!error) {
            error = std::current_exception();
          }
        }
        for (auto& lines : meetings) {
          for (auto& meeting : lines) {
            meeting->fail();
          }
        }
      }
      for (auto* axis : axes) {
        axis->close();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

} // namespace accel::distributed::test
