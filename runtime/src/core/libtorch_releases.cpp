#include "core/libtorch_releases.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include <iostream>
#include <thread>

#define ACCEL_LIBTORCH_BEFORE(major, minor) \
  (TORCH_VERSION_MAJOR < (major) ||         \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR < (minor)))

namespace accel::detail {
namespace {

/// Drops one thread's characters, and hands on those of all others.
class WithoutThread : public std::streambuf {
 public:
  explicit WithoutThread(std::streambuf* others) : others_(others) {}

 protected:
  int_type overflow(int_type character) override {
    if (std::this_thread::get_id() == silent_ || others_ == nullptr ||
        traits_type::eq_int_type(character, traits_type::eof())) {
      return traits_type::not_eof(character);
    }
    return others_->sputc(traits_type::to_char_type(character));
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return std::this_thread::get_id() == silent_ || others_ == nullptr
        ? size
        : others_->sputn(text, size);
  }
  int sync() override {
    return others_ == nullptr ? 0 : others_->pubsync();
  }

 private:
  const std::thread::id silent_ = std::this_thread::get_id();
  std::streambuf* others_;
};

// Since 2.11 it is said where Gloo's messages for debugging are.
constexpr bool kGlooGreets =
    !ACCEL_LIBTORCH_BEFORE(2, 8) && ACCEL_LIBTORCH_BEFORE(2, 11);

} // namespace

SilentConnecting::SilentConnecting() {
  if (kGlooGreets) {
    filter_ = std::make_unique<WithoutThread>(std::cout.rdbuf());
    program_ = std::cout.rdbuf(filter_.get());
  }
}

SilentConnecting::~SilentConnecting() {
  if (filter_ != nullptr) {
    std::cout.rdbuf(program_);
  }
}

c10d::TCPStoreOptions store_options() {
  c10d::TCPStoreOptions options;
#if ACCEL_LIBTORCH_BEFORE(2, 8)
  // Its server over libuv opens sockets itself; the older one takes them over.
  options.useLibUV = false;
#endif
  return options;
}

bool quantile_reads_memory() {
  return !ACCEL_LIBTORCH_BEFORE(2, 14);
}

void empty_device_caches() {
// The allocators of 2.7 and 2.8 have no common way to empty them.
#if !ACCEL_LIBTORCH_BEFORE(2, 9)
  const auto accelerator = at::getAccelerator(/*checked=*/false);
  if (accelerator) {
    auto* allocator = at::getDeviceAllocator(*accelerator);
    if (allocator->initialized()) {
      allocator->emptyCache();
    }
  }
#endif
}

} // namespace accel::detail
