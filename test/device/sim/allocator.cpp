#include "allocator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace accel::sim {
namespace {

/// A stream has used it up to a number.
struct Use {
  Queue* stream;
  uint64_t number;
};

bool all_done(std::vector<Use>& uses) {
  uses.erase(
      std::remove_if(
          uses.begin(),
          uses.end(),
          [](const Use& use) { return use.stream->done(use.number); }),
      uses.end());
  return uses.empty();
}

struct Block {
  c10::DeviceIndex device = 0;
  char* seen = nullptr;
  size_t size = 0;
  /// Where it was made: it can be made again there without waiting.
  Queue* home = nullptr;
  std::vector<Queue*> others;
  /// Freed: what others were still doing then.
  std::vector<Use> uses;
};

size_t rounded(size_t bytes) {
  size_t size = 64;
  while (size < bytes && size < 4096) {
    size *= 2;
  }
  return bytes <= size ? size : (bytes + 4095) / 4096 * 4096;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto index = current_device();
    if (bytes == 0) {
      return {nullptr, nullptr, &free, sim::device(index)};
    }
    check_device(index);
    const size_t size = rounded(bytes);
    auto& home = queue(current_stream(index));
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& own = devices_.at(index);
    collect(own);
    Block* block = take(own.cached[&home], size);
    if (block == nullptr) {
      block = make(index, own, size, bytes);
    }
    block->home = &home;
    own.stats.allocated_bytes[0].increase(size);
    own.stats.requested_bytes[0].increase(bytes);
    own.stats.allocation[0].increase(1);
    return {block->seen, block, &free, sim::device(index)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    queue(current_stream()).push("copy_data", [=] {
      std::memcpy(kernel_address(to), kernel_address(from), bytes);
    });
  }

  bool initialized() override {
    return true;
  }

  void emptyCache(c10::MempoolId_t /*pool*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& own : devices_) {
      release(own);
    }
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    auto* block = static_cast<Block*>(data.get_context());
    if (block == nullptr) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    auto* other = &queue(stream);
    if (other != block->home &&
        std::find(block->others.begin(), block->others.end(), other) ==
            block->others.end()) {
      block->others.push_back(other);
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return devices_.at(device).stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& stats = devices_.at(device).stats;
    for (auto* all : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.allocation, &stats.requested_bytes}) {
      (*all)[0].reset_accumulated();
    }
    stats.num_ooms = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& stats = devices_.at(device).stats;
    for (auto* all : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.allocation, &stats.requested_bytes}) {
      (*all)[0].reset_peak();
    }
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto& own = devices_.at(device);
    const size_t reserved =
        static_cast<size_t>(own.stats.reserved_bytes[0].current);
    return {own.limit - std::min(own.limit, reserved), own.limit};
  }

  void set_limit(c10::DeviceIndex device, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_.at(device).limit = bytes;
  }

 private:
  using Blocks = std::map<size_t, std::vector<Block*>>;
  struct Memory {
    size_t limit = 0;
    /// Of the arena, used for the first time up to here.
    size_t frontier = 0;
    /// Freed, for the stream that it was made on.
    std::map<Queue*, Blocks> cached;
    /// Freed, but others have not done with it.
    std::vector<Block*> waiting;
    /// Given back: for everybody.
    Blocks released;
    c10::CachingDeviceAllocator::DeviceStats stats;
  };

 public:
  Allocator() {
    const char* text = std::getenv("ACCEL_SIM_MEMORY_MB");
    const size_t limit =
        (text != nullptr ? std::strtoull(text, nullptr, 10) : 4096) << 20;
    for (auto& own : devices_) {
      own.limit = limit;
    }
  }

 private:
  static Allocator& get() {
    return static_cast<Allocator&>(device_allocator());
  }

  static Block* take(Blocks& blocks, size_t size) {
    const auto found = blocks.find(size);
    if (found == blocks.end() || found->second.empty()) {
      return nullptr;
    }
    Block* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  Block* make(c10::DeviceIndex index, Memory& own, size_t size, size_t bytes) {
    const auto fits = [&] {
      return static_cast<size_t>(own.stats.reserved_bytes[0].current) + size <=
          own.limit;
    };
    if (!fits()) {
      ++own.stats.num_alloc_retries;
      release(own);
    }
    if (!fits()) {
      ++own.stats.num_ooms;
      TORCH_CHECK_WITH(
          OutOfMemoryError,
          false,
          "sim:",
          static_cast<int>(index),
          " out of memory. Tried to allocate ",
          bytes,
          " bytes; the device has ",
          own.limit,
          ", of which ",
          own.stats.allocated_bytes[0].current,
          " are allocated");
    }
    Block* block = take(own.released, size);
    if (block == nullptr) {
      TORCH_CHECK_WITH(
          OutOfMemoryError,
          own.frontier + size <= kArenaBytes,
          "sim out of memory. No addresses are left");
      block = new Block;
      block->device = index;
      block->seen = arena(index).seen + own.frontier;
      block->size = size;
      own.frontier += size;
      std::memset(kernel_address(block->seen), 0xff, size);
    }
    own.stats.reserved_bytes[0].increase(size);
    own.stats.segment[0].increase(1);
    return block;
  }

  /// What others have done with goes home.
  void collect(Memory& own) {
    auto& waiting = own.waiting;
    for (size_t i = 0; i < waiting.size();) {
      Block* block = waiting[i];
      if (all_done(block->uses)) {
        go_home(own, block);
        waiting[i] = waiting.back();
        waiting.pop_back();
      } else {
        ++i;
      }
    }
  }

  void go_home(Memory& own, Block* block) {
    // In the order of its stream, as what comes next would be written: NaN for
    // those who read it all the same.
    block->home->push_always([block] {
      std::memset(kernel_address(block->seen), 0xff, block->size);
    });
    own.cached[block->home][block->size].push_back(block);
  }

  void release(Memory& own) {
    for (Block* block : own.waiting) {
      for (const auto& use : block->uses) {
        use.stream->wait(use.number);
      }
    }
    collect(own);
    for (auto& [home, blocks] : own.cached) {
      home->wait(home->given());
      for (auto& [size, list] : blocks) {
        own.stats.reserved_bytes[0].decrease(size * list.size());
        own.stats.segment[0].decrease(list.size());
        auto& released = own.released[size];
        released.insert(released.end(), list.begin(), list.end());
        list.clear();
      }
    }
  }

  static void free(void* context) {
    auto* block = static_cast<Block*>(context);
    if (block == nullptr) {
      return;
    }
    auto& self = get();
    const std::lock_guard<std::mutex> lock(self.mutex_);
    auto& own = self.devices_.at(block->device);
    own.stats.allocated_bytes[0].decrease(block->size);
    own.stats.allocation[0].decrease(1);
    for (Queue* other : block->others) {
      block->uses.push_back({other, other->given()});
    }
    block->others.clear();
    if (block->uses.empty()) {
      self.go_home(own, block);
    } else {
      own.waiting.push_back(block);
    }
  }

  std::mutex mutex_;
  std::array<Memory, 16> devices_;
};

/// Freed blocks are kept, by size; those that a stream still uses are not given
/// out.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &free, c10::kCPU};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t size = rounded(bytes);
    for (auto& [address, block] : blocks_) {
      if (block.is_free && block.size == size && all_done(block.uses)) {
        block.is_free = false;
        return {address, address, &free, c10::kCPU};
      }
    }
    void* memory = nullptr;
    TORCH_CHECK(::posix_memalign(&memory, 64, size) == 0, "sim: no pinned memory");
    auto* address = static_cast<char*>(memory);
    blocks_[address].size = size;
    return {address, address, &free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool has(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find(address) != nullptr;
  }
  void note_use(const void* address, c10::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (auto* block = find(address)) {
      auto& used = queue(stream);
      block->uses.push_back({&used, used.given()});
    }
  }

 private:
  struct PinnedBlock {
    size_t size = 0;
    bool is_free = false;
    std::vector<Use> uses;
  };

  PinnedBlock* find(const void* address) {
    auto found = blocks_.upper_bound(static_cast<const char*>(address));
    if (found == blocks_.begin()) {
      return nullptr;
    }
    --found;
    return address < static_cast<const void*>(found->first + found->second.size)
        ? &found->second
        : nullptr;
  }

  static void free(void* address) {
    if (address != nullptr) {
      auto& self = static_cast<PinnedAllocator&>(pinned_allocator());
      const std::lock_guard<std::mutex> lock(self.mutex_);
      self.blocks_.find(static_cast<char*>(address))->second.is_free = true;
    }
  }

  std::mutex mutex_;
  std::map<char*, PinnedBlock, std::less<>> blocks_;
};

} // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* const allocator = new Allocator;
  return *allocator;
}

void set_memory_limit(c10::DeviceIndex device, size_t bytes) {
  static_cast<Allocator&>(device_allocator()).set_limit(device, bytes);
}

c10::Allocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

bool is_pinned(const void* address) {
  return static_cast<PinnedAllocator&>(pinned_allocator()).has(address);
}

void note_use_of_pinned(const void* address, c10::Stream stream) {
  static_cast<PinnedAllocator&>(pinned_allocator()).note_use(address, stream);
}

} // namespace accel::sim
