// What LibTorch asks of a device: its guard (devices, streams, events) and its
// hooks.

#include "allocator.h"
#include "generator.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>

namespace accel::sim {
namespace {

struct Event {
  Queue* stream = nullptr;
  uint64_t number = 0;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kSim;

  c10::DeviceType type() const override {
    return kSim;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    set_current_device(device.index());
    return before;
  }
  c10::Device getDevice() const override {
    return sim::device(current_device());
  }
  void setDevice(c10::Device device) const override {
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    restore_current_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/)
      const override {
    return pool_stream(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return new_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/)
      const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex device,
      const c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(
        device == -1 || device == stream.device_index(),
        "sim: an event of device ",
        static_cast<int>(device),
        " cannot be recorded on a stream of device ",
        static_cast<int>(stream.device_index()));
    if (*event == nullptr) {
      *event = new Event;
    }
    auto& recorded = *static_cast<Event*>(*event);
    auto time = std::make_shared<std::chrono::steady_clock::time_point>();
    recorded.stream = &queue(stream);
    recorded.time = time;
    recorded.number = recorded.stream->push_always(
        [time] { *time = std::chrono::steady_clock::now(); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto* recorded = static_cast<Event*>(event);
    if (recorded != nullptr && recorded->stream != nullptr) {
      order(*recorded->stream, recorded->number, queue(stream));
    }
  }
  bool queryEvent(void* event) const override {
    const auto* recorded = static_cast<Event*>(event);
    return recorded == nullptr || recorded->stream == nullptr ||
        recorded->stream->done(recorded->number);
  }
  bool queryStream(const c10::Stream& stream) const override {
    auto& asked = queue(stream);
    return asked.done(asked.given());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize(stream);
  }
  void synchronizeEvent(void* event) const override {
    const auto* recorded = static_cast<Event*>(event);
    if (recorded != nullptr && recorded->stream != nullptr) {
      recorded->stream->wait(recorded->number);
      check_device(recorded->stream->device());
    }
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device < 0 ? current_device() : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream)
      const override {
    device_allocator().recordStream(data, stream);
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex /*device*/)
      const override {
    TORCH_CHECK(
        begin != nullptr && end != nullptr && queryEvent(begin) && queryEvent(end),
        "sim: time passes between events that are recorded and done");
    return std::chrono::duration<double, std::milli>(
               *static_cast<Event*>(end)->time - *static_cast<Event*>(begin)->time)
        .count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    c10::DeviceIndex index = 0;
    TORCH_CHECK(is_seen_address(data, &index), "sim: no device's memory");
    return sim::device(index);
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size)
      const override;
};

[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("sim");
  c10::SetAllocator(kSim, &device_allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t size)
    const {
  const c10::DeviceGuard guard(storage.device());
  auto data = device_allocator().allocate(size);
  device_allocator().copy_data(
      data.get(), storage.data(), std::min(size, storage.nbytes()));
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(size);
}

} // namespace
} // namespace accel::sim
