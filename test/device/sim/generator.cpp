#include "generator.h"

#include "hardware.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/Utils.h>

#include <deque>
#include <random>

namespace accel::sim {
namespace {

class SimGenerator final : public c10::GeneratorImpl {
 public:
  explicit SimGenerator(c10::DeviceIndex index)
      : GeneratorImpl(
            sim::device(index),
            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override {
    offset_ = offset;
  }
  uint64_t get_offset() const override {
    return offset_;
  }
  uint64_t current_seed() const override {
    return seed_;
  }
  uint64_t seed() override {
    set_current_seed(std::random_device{}());
    return seed_;
  }
  /// 16 bytes, as CUDA's: seed and offset.
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(
        state.numel() == 16, "sim: a generator's state has 16 bytes, not ", state.numel());
    const auto* bytes = static_cast<const uint8_t*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({16}, at::kByte, {}, {}, {}, {});
    std::memcpy(state.mutable_data_ptr(), &seed_, 8);
    std::memcpy(state.mutable_data_ptr<uint8_t>() + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

 private:
  SimGenerator* clone_impl() const override {
    auto* copy = new SimGenerator(device_.index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

} // namespace

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<SimGenerator>(index < 0 ? current_device() : index);
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* const all = [] {
    auto* made = new std::deque<at::Generator>;
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      made->push_back(new_generator(i));
    }
    return made;
  }();
  return all->at(static_cast<size_t>(index < 0 ? current_device() : index));
}

at::Generator draw(at::Generator generator) {
  TORCH_CHECK(
      generator.device().type() == kSim,
      "Expected a 'sim' device type for generator but found '",
      generator.device().type(),
      "'");
  const std::lock_guard<std::mutex> lock(generator.mutex());
  auto* impl = generator.unsafeGetGeneratorImpl();
  at::Philox4_32 philox(impl->current_seed(), 0, impl->get_offset());
  uint64_t seed = philox();
  seed = seed << 32 | philox();
  // CUDA's offsets are multiples of four.
  impl->set_offset(impl->get_offset() + 4);
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

} // namespace accel::sim
