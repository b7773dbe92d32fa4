#include "utils/random_replay.h"

#include "device/accelerator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <mutex>

namespace accel::detail {

RandomState::RandomState(c10::Device device, const at::Generator& other)
    : all_{at::detail::getDefaultCPUGenerator()} {
  if (!device.is_cpu() && !device.is_meta()) {
    all_.push_back(default_generator(device));
  }
  if (other.defined() && std::find(all_.begin(), all_.end(), other) == all_.end()) {
    all_.push_back(other);
  }
  for (auto& generator : all_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
}

void RandomState::restore() const {
  for (size_t i = 0; i < all_.size(); ++i) {
    at::Generator generator = all_[i];
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(states_[i]);
  }
}

} // namespace accel::detail
