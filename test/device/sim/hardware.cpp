#include "hardware.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>

namespace accel::sim {
namespace {

int64_t number_of(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? std::atoll(text) : otherwise;
}

/// What is read of the environment is read again after a fork: a test's process is
/// forked from one that has loaded this with other variables.
constexpr int64_t kUnread = -1;
std::atomic<int64_t> latency_us{kUnread};
std::atomic<int64_t> devices{kUnread};
const bool reads_again = ::pthread_atfork(nullptr, nullptr, [] {
  latency_us = kUnread;
  devices = kUnread;
}) == 0;

int64_t read_once(std::atomic<int64_t>& value, const char* name, int64_t otherwise) {
  if (value == kUnread) {
    value = std::max<int64_t>(0, number_of(name, otherwise));
  }
  return value;
}

std::chrono::microseconds latency() {
  return std::chrono::microseconds(read_once(latency_us, "ACCEL_SIM_LATENCY_US", 200));
}

std::atomic<bool> ending{false};
std::atomic<int> busy{0};

struct Failure {
  std::mutex mutex;
  std::string text;
};

constexpr int kMostDevices = 16;
std::array<Failure, kMostDevices> failures;

/// Streams: never destroyed, since their threads may outlive everything.
struct Streams {
  std::mutex mutex;
  std::array<std::vector<std::unique_ptr<Queue>>, kMostDevices> queues;
  std::array<int64_t, kMostDevices> turns{};
};

Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

constexpr int64_t kPool = 4;

thread_local c10::DeviceIndex own_device = 0;
thread_local std::array<c10::StreamId, kMostDevices> own_streams{};

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), id);
}

/// Work that runs while the process ends would use what is gone.
void stop_streams() {
  ending = true;
  for (int i = 0; i < 2000 && busy > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

} // namespace

c10::Device device(c10::DeviceIndex index) {
  return {kSim, index};
}

void set_latency(std::chrono::microseconds latency) {
  latency_us = latency.count();
}

c10::DeviceIndex device_count() {
  return static_cast<c10::DeviceIndex>(
      std::min<int64_t>(kMostDevices, read_once(devices, "ACCEL_SIM_DEVICES", 2)));
}

c10::DeviceIndex current_device() {
  return own_device;
}

void set_current_device(c10::DeviceIndex index) {
  TORCH_CHECK(
      index >= 0 && index < device_count(),
      "sim: there is no device ",
      static_cast<int>(index),
      "; there are ",
      static_cast<int>(device_count()),
      " (ACCEL_SIM_DEVICES)");
  own_device = index;
}

void restore_current_device(c10::DeviceIndex index) noexcept {
  own_device = index;
}

c10::Stream default_stream(c10::DeviceIndex index) {
  return stream_of(index < 0 ? own_device : index, 0);
}

c10::Stream current_stream(c10::DeviceIndex index) {
  index = index < 0 ? own_device : index;
  return stream_of(index, own_streams.at(index));
}

void set_current_stream(c10::Stream stream) {
  own_streams.at(stream.device_index()) = stream.id();
}

c10::Stream new_stream(c10::DeviceIndex index) {
  index = index < 0 ? own_device : index;
  auto& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& queues = all.queues.at(index);
  do {
    queues.push_back(std::make_unique<Queue>(
        index, static_cast<c10::StreamId>(queues.size())));
  } while (queues.size() <= kPool + 1);
  return stream_of(index, static_cast<c10::StreamId>(queues.size() - 1));
}

c10::Stream pool_stream(c10::DeviceIndex index) {
  index = index < 0 ? own_device : index;
  auto& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return stream_of(index, 1 + all.turns.at(index)++ % kPool);
}

Queue& queue(c10::Stream stream) {
  auto& all = streams();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& queues = all.queues.at(stream.device_index());
  while (queues.size() <= static_cast<size_t>(std::max(stream.id(), kPool))) {
    queues.push_back(std::make_unique<Queue>(
        stream.device_index(), static_cast<c10::StreamId>(queues.size())));
  }
  return *queues[static_cast<size_t>(stream.id())];
}

uint64_t work_given(c10::Stream stream) {
  return queue(stream).given();
}

void give(c10::Stream stream, const char* name, std::function<void()> work) {
  check_device(stream.device_index());
  queue(stream).push(name, std::move(work));
}

/// After the destructors of the program's static objects, as a driver does, and
/// before LibTorch's.
[[maybe_unused]] const int at_exit = std::atexit(stop_streams);

Queue::Queue(c10::DeviceIndex device, c10::StreamId id)
    : device_(device), id_(id) {}

uint64_t Queue::push(Item item) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  }
  items_.push_back(std::move(item));
  given_cv_.notify_one();
  return ++given_;
}

uint64_t Queue::push(const char* name, std::function<void()> work, bool late) {
  return push({name, std::move(work), id_ != 0 || late, false});
}

uint64_t Queue::push_always(std::function<void()> work) {
  return push({"", std::move(work), false, true});
}

uint64_t Queue::given() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return given_;
}

bool Queue::done(uint64_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_ >= number;
}

void Queue::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  done_cv_.wait(lock, [&] { return done_ >= number; });
}

void Queue::run() {
  own_device = device_;
  for (;;) {
    Item item;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      given_cv_.wait(lock, [&] { return !items_.empty(); });
      item = std::move(items_.front());
      items_.pop_front();
    }
    ++busy;
    if (ending) {
      --busy;
      return;
    }
    if (item.always || failure(device_).empty()) {
      if (item.late && latency().count() > 0) {
        std::this_thread::sleep_for(latency());
      }
      const auto begin = std::chrono::system_clock::now();
      try {
        const InKernel note(item.name);
        item.work();
      } catch (const c10::Error& error) {
        fail(device_, std::string(item.name) + ": " + error.what_without_backtrace());
      } catch (const std::exception& error) {
        fail(device_, std::string(item.name) + ": " + error.what());
      }
      if (!item.always && is_profiled()) {
        note_run(item.name, device_, id_, begin);
      }
    }
    // What it holds goes before anybody is told.
    item.work = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++done_;
      done_cv_.notify_all();
    }
    --busy;
  }
}

void order(Queue& earlier, uint64_t number, Queue& later) {
  if (&earlier != &later) {
    later.push_always([&earlier, number] { earlier.wait(number); });
  }
}

void synchronize(c10::Stream stream) {
  auto& waited = queue(stream);
  waited.wait(waited.given());
  check_device(stream.device_index());
}

void wait_for_device(c10::DeviceIndex index) {
  size_t count = 0;
  {
    auto& all = streams();
    const std::lock_guard<std::mutex> lock(all.mutex);
    count = all.queues.at(index).size();
  }
  for (size_t id = 0; id < count; ++id) {
    auto& waited = queue(stream_of(index, static_cast<c10::StreamId>(id)));
    waited.wait(waited.given());
  }
}

void synchronize_device(c10::DeviceIndex index) {
  wait_for_device(index);
  check_device(index);
}

void fail(c10::DeviceIndex index, const std::string& what) {
  auto& failed = failures.at(index);
  const std::lock_guard<std::mutex> lock(failed.mutex);
  if (failed.text.empty()) {
    failed.text = what.empty() ? "unknown" : what;
  }
}

std::string failure(c10::DeviceIndex index) {
  auto& failed = failures.at(index);
  const std::lock_guard<std::mutex> lock(failed.mutex);
  return failed.text;
}

void repair(c10::DeviceIndex index) {
  auto& failed = failures.at(index);
  const std::lock_guard<std::mutex> lock(failed.mutex);
  failed.text.clear();
}

void check_device(c10::DeviceIndex index) {
  const auto text = failure(index);
  TORCH_CHECK(
      text.empty(),
      "sim:",
      static_cast<int>(index),
      " has failed, in a kernel that was given to it before: ",
      text);
}

Arena& arena(c10::DeviceIndex index) {
  static std::mutex mutex;
  static std::array<Arena, kMostDevices> arenas;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& result = arenas.at(index);
  if (result.used == nullptr) {
    const auto map = [](int protection) {
      void* memory = ::mmap(
          nullptr,
          kArenaBytes,
          protection,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
          -1,
          0);
      TORCH_CHECK(memory != MAP_FAILED, "sim: no address space for a device");
      return static_cast<char*>(memory);
    };
    result.seen = map(PROT_NONE);
    result.used = map(PROT_READ | PROT_WRITE);
  }
  return result;
}

bool is_seen_address(const void* address, c10::DeviceIndex* device) {
  const auto* at = static_cast<const char*>(address);
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    const char* seen = arena(i).seen;
    if (at >= seen && at < seen + kArenaBytes) {
      if (device != nullptr) {
        *device = i;
      }
      return true;
    }
  }
  return false;
}

void* kernel_address(const void* seen) {
  if (seen == nullptr) {
    return nullptr;
  }
  c10::DeviceIndex index = 0;
  TORCH_CHECK(
      is_seen_address(seen, &index), "sim: ", seen, " is no device's memory");
  return arena(index).used + (static_cast<const char*>(seen) - arena(index).seen);
}

} // namespace accel::sim
