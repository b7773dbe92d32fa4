#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <torch/data/samplers/base.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace accel::data {

/// A random order that depends on a seed and the number of the pass, and on
/// nothing that the program draws in between; the permutations are those of
/// Accelerate's `SeedableRandomSampler`.
///
///     auto loader = accel::data::make_data_loader(
///         dataset, accel::data::SeedableRandomSampler(size, /*seed=*/42), 64);
class ACCEL_API SeedableRandomSampler
    : public torch::data::samplers::Sampler<> {
 public:
  /// Without a seed: the one of LibTorch's default generator (process 0's) when
  /// the first pass begins.
  explicit SeedableRandomSampler(
      size_t size,
      std::optional<uint64_t> seed = std::nullopt);

  /// Begins the pass of number `epoch()`, whose order comes from seed + epoch.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// The indices of the next `batch_size` samples; fewer at the end of the
  /// pass, none after it.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Saves the seed, the pass and the place in it.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Goes on where the saved sampler was.
  void load(torch::serialize::InputArchive& archive) override;

  /// The number of the next pass: one more after each complete one.
  int64_t epoch() const {
    return epoch_;
  }
  /// Sets the number of the next pass.
  void set_epoch(int64_t epoch) {
    epoch_ = epoch;
  }

 private:
  int64_t size_;
  std::optional<uint64_t> seed_;
  int64_t epoch_ = 0;
  at::Tensor indices_;
  int64_t position_ = 0;
};

} // namespace accel::data
