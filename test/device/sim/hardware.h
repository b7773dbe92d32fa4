#pragma once

#include "sim.h"

#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace accel::sim {

c10::DeviceIndex device_count();
c10::DeviceIndex current_device();
/// Throws where there is no such device.
void set_current_device(c10::DeviceIndex index);
void restore_current_device(c10::DeviceIndex index) noexcept;
/// The calling thread's current one; `index` -1 is the current device.
c10::Stream current_stream(c10::DeviceIndex index = -1);
void set_current_stream(c10::Stream stream);
c10::Stream default_stream(c10::DeviceIndex index);
c10::Stream new_stream(c10::DeviceIndex index);
c10::Stream pool_stream(c10::DeviceIndex index);

/// What a stream has to do, in order, done by a thread of its own.
class Queue {
 public:
  /// Stream 0 is the default one; on the others all work comes late.
  Queue(c10::DeviceIndex device, c10::StreamId id);

  /// Returns its number. `name` for messages. `late`: after the latency, on the
  /// default stream, too. Nothing is run any more on a device that has failed.
  uint64_t push(const char* name, std::function<void()> work, bool late = false);
  /// As `push`, for what must happen on a failed device, too.
  uint64_t push_always(std::function<void()> work);
  uint64_t given() const;
  bool done(uint64_t number) const;
  /// Returns when it is done. Does not throw.
  void wait(uint64_t number);
  c10::DeviceIndex device() const {
    return device_;
  }

 private:
  struct Item {
    const char* name;
    std::function<void()> work;
    bool late;
    bool always;
  };
  uint64_t push(Item item);
  void run();

  const c10::DeviceIndex device_;
  const c10::StreamId id_;
  mutable std::mutex mutex_;
  std::condition_variable given_cv_;
  std::condition_variable done_cv_;
  std::deque<Item> items_;
  uint64_t given_ = 0;
  uint64_t done_ = 0;
  bool started_ = false;
};

Queue& queue(c10::Stream stream);
/// `later` goes on only when `earlier` has done number `number`.
void order(Queue& earlier, uint64_t number, Queue& later);
/// Waits; throws where the device has failed.
void synchronize(c10::Stream stream);
void synchronize_device(c10::DeviceIndex index);
/// Waits for all streams of a device; does not throw.
void wait_for_device(c10::DeviceIndex index);
/// Throws where the device has failed.
void check_device(c10::DeviceIndex index);
void fail(c10::DeviceIndex index, const std::string& what);

/// Whether LibTorch's profiler records what devices do (profiler.cpp), and what
/// it is told of: one kernel or copy, which ends now.
bool is_profiled();
void note_run(
    const char* name,
    c10::DeviceIndex device,
    c10::StreamId stream,
    std::chrono::system_clock::time_point begin);

/// Memory of a device: two mappings of the same size. `seen` is what tensors
/// have as their address and can never be touched, `used` is where the values
/// lie.
struct Arena {
  char* seen = nullptr;
  char* used = nullptr;
};
constexpr size_t kArenaBytes = size_t{16} << 30;
Arena& arena(c10::DeviceIndex index);
/// The address at which kernels find what tensors call `seen`; null for null.
void* kernel_address(const void* seen);
bool is_seen_address(const void* address, c10::DeviceIndex* device = nullptr);

/// The operator that this thread is in, or was last in.
struct OperatorNote {
  const char* current;
  const char* last;
};
OperatorNote operator_note();
/// Names what this thread does in messages of stray accesses while it lives.
class InKernel {
 public:
  explicit InKernel(const char* name);
  ~InKernel();

 private:
  const char* outer_;
};

} // namespace accel::sim
