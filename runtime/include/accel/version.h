#pragma once

#include <accel/export.h>

#include <torch/version.h>

#include <cstddef>

/// The project's version; CMake compares it with its own.
#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0

namespace accel::detail {

/// What a program was compiled with: headers and library must be of one build,
/// or they disagree on what lies where.
struct BuiltWith {
  int version[3];
  int torch_version[2];
  size_t options_size;
};

template <typename Options>
constexpr BuiltWith built_with() {
  return {
      {ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH},
      {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR},
      sizeof(Options)};
}

/// Throws `c10::Error` where the library is another one than the headers.
ACCEL_API void check_built_with(const BuiltWith& program);

} // namespace accel::detail
