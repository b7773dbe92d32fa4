#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace accel {

/// Options of `set_seed`.
struct SetSeedOptions {
  /// Seeds this process with seed + `process_index`, so that processes draw
  /// different numbers.
  TORCH_ARG(bool, device_specific) = false;
  /// Empty: the Accelerator's.
  TORCH_ARG(std::optional<int64_t>, process_index);
  /// Makes LibTorch use deterministic algorithms only, or throw where it has
  /// none.
  TORCH_ARG(bool, deterministic) = false;
};

/// Seeds LibTorch's generators of all devices and the C library's `rand`. A
/// `std::mt19937` of your own is yours to seed.
///
/// With `match_single_device` do not use `device_specific`: there the
/// generators must be equal on all processes.
ACCEL_API void set_seed(uint64_t seed, const SetSeedOptions& options = {});

} // namespace accel
