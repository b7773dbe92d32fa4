#include <accel/data/cursor.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace accel::detail {
namespace {

std::vector<ResumableLoader*>& loaders() {
  // Never destroyed: loaders may be, at the program's end, after it.
  static auto* all = new std::vector<ResumableLoader*>();
  return *all;
}

void set_generator_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

} // namespace

ResumableLoader::ResumableLoader() {
  static int64_t made = 0;
  number_ = made++;
  loaders().push_back(this);
}

ResumableLoader::~ResumableLoader() {
  auto& all = loaders();
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

const std::vector<ResumableLoader*>& living_loaders() {
  return loaders();
}

namespace {

struct ExpectedLoaders {
  std::map<int64_t, LoaderCursor> cursors;
  at::Tensor generator;
};

ExpectedLoaders& expected_loaders() {
  static auto* expected = new ExpectedLoaders();
  return *expected;
}

} // namespace

void expect_loaders(std::map<int64_t, LoaderCursor> cursors, at::Tensor generator) {
  expected_loaders() = {std::move(cursors), std::move(generator)};
}

void enter_loader(ResumableLoader& loader) {
  auto& expected = expected_loaders();
  const auto found = expected.cursors.find(loader.number());
  if (found == expected.cursors.end()) {
    return;
  }
  LoaderCursor saved = std::move(found->second);
  expected.cursors.erase(found);
  if (!saved.same_loader(loader.cursor())) {
    return; // Of another program, which loads the rest.
  }
  set_generator_state(expected.generator);
  if (!saved.sampler_state.empty()) {
    loader.resume(std::move(saved));
  }
}

ResumableLoader& checked_resumable(ResumableLoader* loader) {
  TORCH_CHECK(
      loader != nullptr,
      "accel: this data loader was made by torch::data::make_data_loader, so "
      "that accel cannot say which batches it gives. Make it with "
      "accel::data::make_data_loader.");
  return *loader;
}

void throw_other_batches(const std::string& sampler, int64_t batches) {
  TORCH_CHECK(
      false,
      "accel: the pass over the data set cannot go on where it was when the "
      "checkpoint was saved: the sampler ",
      sampler,
      " draws other indices for its first ",
      batches,
      " batches now. It must draw in reset(), with LibTorch's default "
      "generator only, and what else it depends on must be in its save() and "
      "load().");
}

uint64_t mix_fingerprint(uint64_t fingerprint, uint64_t value) {
  // The mixing step of splitmix64.
  uint64_t mixed = fingerprint ^ (value + 0x9E3779B97F4A7C15);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

at::Tensor generator_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

GeneratorInState::GeneratorInState(const at::Tensor& state)
    : own_(generator_state()) {
  set_generator_state(state);
}

GeneratorInState::~GeneratorInState() {
  set_generator_state(own_);
}

} // namespace accel::detail
