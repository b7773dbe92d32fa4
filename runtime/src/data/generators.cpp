#include <accel/data/generators.h>
#include <accel/detail/communicator.h>

#include "device/accelerator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace accel::detail {
namespace {

at::Tensor get_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor main_process_state(const at::Tensor& own) {
  auto state = own.clone();
  communicator(Channel::kMain).broadcast(state, /*source=*/0);
  return state;
}

} // namespace

GeneratorMark::GeneratorMark() : state_(get_state()) {}

bool GeneratorMark::moved() const {
  return !at::equal(state_, get_state());
}

void GeneratorMark::restore() const {
  set_state(state_);
}

void adopt_main_process_generators(
    Communicator& communicator,
    at::Device device) {
  const auto adopt = [&](at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    auto state = generator.get_state();
    communicator.broadcast(state, /*source=*/0);
    if (communicator.rank() != 0) {
      generator.set_state(state);
    }
  };
  adopt(at::detail::getDefaultCPUGenerator());
  if (!device.is_cpu()) {
    adopt(default_generator(device));
  }
}

void synchronize_generators() {
  const auto own = get_state();
  const auto state = main_process_state(own);
  if (!at::equal(own, state)) {
    TORCH_WARN_ONCE(
        "accel: process ",
        communicator().rank(),
        " had drawn other random numbers than process 0, whose generator it "
        "gets now. What was drawn since the generators were equal differs from "
        "what one device would have drawn. Seed all processes alike, and draw "
        "the same numbers on all of them: the same calls, with the batch in "
        "the leading dimension.");
    set_state(state);
  }
}

void follow_main_process_generator() {
  const auto own = get_state();
  const auto state = main_process_state(own);
  if (!at::equal(own, state)) {
    set_state(state);
  }
}

MainProcessGenerator::MainProcessGenerator() {
  const auto own = get_state();
  const auto state = main_process_state(own);
  if (!at::equal(own, state)) {
    foreign_ = true;
    set_state(state);
  }
}

MainProcessGenerator::~MainProcessGenerator() {
  if (foreign_) {
    own_.restore();
  }
}

} // namespace accel::detail
