// What LibTorch's profiler shows of a device: kernels and copies, on the stream
// that ran them.

#include "hardware.h"

#include <libkineto.h>
#include <output_base.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace accel::sim {
namespace {

using libkineto::ActivityType;

struct Ran {
  std::string name;
  c10::DeviceIndex device;
  int64_t stream;
  int64_t begin_ns;
  int64_t end_ns;
};

std::atomic<bool> recording{false};

/// Never destroyed: streams outlive everything.
struct Recorded {
  std::mutex mutex;
  std::vector<Ran> all;
};

Recorded& recorded() {
  static auto* const made = new Recorded;
  return *made;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    const std::lock_guard<std::mutex> lock(recorded().mutex);
    recorded().all.clear();
    recording = true;
  }
  /// What has been given until now belongs to it, as CUPTI's does.
  void stop() override {
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      wait_for_device(i);
    }
    recording = false;
  }
  std::vector<std::string> errors() override {
    return {};
  }
  void processTrace(libkineto::ActivityLogger& logger) override {
    const std::lock_guard<std::mutex> lock(recorded().mutex);
    for (const auto& ran : recorded().all) {
      buffer_->emplace_activity(
          buffer_->span, ActivityType::CONCURRENT_KERNEL, ran.name);
      auto& activity = *buffer_->activities.back();
      activity.startTime = ran.begin_ns;
      activity.endTime = ran.end_ns;
      activity.device = ran.device;
      activity.resource = static_cast<int32_t>(ran.stream);
      activity.log(logger);
    }
    recorded().all.clear();
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr;
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }
  /// The logger keeps references into it.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }
  const std::set<ActivityType>& availableActivities() const override {
    return activities_;
  }
  /// Kernels are asked for where LibTorch is asked for this kind of devices.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& asked,
      const libkineto::Config& /*config*/) override {
    return asked.count(ActivityType::CONCURRENT_KERNEL) != 0
               ? std::make_unique<Session>()
               : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*begin_ms*/,
      int64_t /*duration_ms*/,
      const std::set<ActivityType>& asked,
      const libkineto::Config& config) override {
    return configure(asked, config);
  }

 private:
  const std::string name_ = "sim";
  const std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL};
};

[[maybe_unused]] const bool registered = [] {
  // LibTorch would start CUPTI where there is any device at its first profile.
  libkineto_init(/*cpuOnly=*/true, /*logOnError=*/false);
  libkineto::api().registerProfilerFactory(
      [] { return std::make_unique<Profiler>(); });
  return true;
}();

} // namespace

bool is_profiled() {
  return recording;
}

void note_run(
    const char* name,
    c10::DeviceIndex device,
    int64_t stream,
    std::chrono::system_clock::time_point begin) {
  const auto ns = [](std::chrono::system_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               time.time_since_epoch())
        .count();
  };
  const auto end = std::chrono::system_clock::now();
  const std::lock_guard<std::mutex> lock(recorded().mutex);
  recorded().all.push_back({name, device, stream, ns(begin), ns(end)});
}

} // namespace accel::sim
