#pragma once

#include <cstdint>

/// How large the units of a model are (model_units.h), which `accel estimate-memory`
/// must know, too, without LibTorch.
namespace accel::parallel {

/// Neighbours of fewer bytes together are one.
constexpr int64_t kSmallUnit = int64_t{1} << 20;

/// A child that holds more than one of so many parts of the model is taken apart.
constexpr int64_t kPartsOfModel = 4;

} // namespace accel::parallel
