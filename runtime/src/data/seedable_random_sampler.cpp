#include <accel/data/seedable_random_sampler.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>

namespace accel::data {

SeedableRandomSampler::SeedableRandomSampler(
    size_t size,
    std::optional<uint64_t> seed)
    : size_(static_cast<int64_t>(size)), seed_(seed) {}

void SeedableRandomSampler::reset(std::optional<size_t> new_size) {
  size_ = static_cast<int64_t>(new_size.value_or(static_cast<size_t>(size_)));
  if (!seed_) {
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    seed_ = generator.current_seed();
  }
  auto generator = at::make_generator<at::CPUGeneratorImpl>(
      *seed_ + static_cast<uint64_t>(epoch_));
  indices_ = at::randperm(size_, generator, at::TensorOptions(at::kLong));
  position_ = 0;
}

std::optional<std::vector<size_t>> SeedableRandomSampler::next(
    size_t batch_size) {
  TORCH_CHECK(
      indices_.defined(),
      "SeedableRandomSampler: next was called before reset.");
  const int64_t end =
      std::min(size_, position_ + static_cast<int64_t>(batch_size));
  if (position_ == end) {
    return std::nullopt;
  }
  const auto* first = indices_.const_data_ptr<int64_t>();
  std::vector<size_t> batch(first + position_, first + end);
  position_ = end;
  if (position_ == size_) {
    ++epoch_;
  }
  return batch;
}

void SeedableRandomSampler::save(
    torch::serialize::OutputArchive& archive) const {
  TORCH_CHECK(
      !indices_.defined() || position_ == 0 || position_ == size_,
      "SeedableRandomSampler: it can be saved between two passes only; data "
      "loaders of accel keep the place in a pass themselves.");
  archive.write("has_seed", c10::IValue(seed_.has_value()));
  archive.write(
      "seed", c10::IValue(static_cast<int64_t>(seed_.value_or(0))));
  archive.write("epoch", c10::IValue(epoch_));
}

void SeedableRandomSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue has_seed, seed, epoch;
  archive.read("has_seed", has_seed);
  archive.read("seed", seed);
  archive.read("epoch", epoch);
  seed_ = has_seed.toBool()
      ? std::optional<uint64_t>(static_cast<uint64_t>(seed.toInt()))
      : std::nullopt;
  epoch_ = epoch.toInt();
  indices_.reset();
  position_ = 0;
}

} // namespace accel::data
