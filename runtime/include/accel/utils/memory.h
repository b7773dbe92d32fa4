#pragma once

#include <accel/export.h>

#include <c10/util/Exception.h>
#include <torch/arg.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel {

/// Whether the error says that memory has run out, so that a smaller batch can
/// help: `c10::OutOfMemoryError`, `std::bad_alloc`, and the messages of
/// LibTorch's CPU allocator, CUDA and cuDNN.
ACCEL_API bool should_reduce_batch_size(const std::exception& error);

/// Returns memory that LibTorch's allocator of the device keeps for reuse.
/// Does nothing without a device.
ACCEL_API void clear_device_cache();

/// Options of `find_executable_batch_size`.
struct FindExecutableBatchSizeOptions {
  /// The first batch size to try.
  TORCH_ARG(int64_t, starting_batch_size) = 128;
  /// The next batch size to try, smaller than its argument. Default: nine
  /// tenths, rounded down.
  TORCH_ARG(std::function<int64_t(int64_t)>, reduce);
  /// Tells whether any process ran out of memory when this one did or did not,
  /// so that all end with the same batch size:
  ///
  ///     options.any_process([&](bool mine) {
  ///       return accelerator.reduce(torch::tensor(mine ? 1. : 0.), "max")
  ///                  .item<double>() > 0;
  ///     });
  ///
  /// It can only help where the processes reach the
  /// end of the function independently: one that has run out of memory does not
  /// take part in the collectives that the others wait in.
  TORCH_ARG(std::function<bool(bool)>, any_process);
};

namespace detail {
ACCEL_API int64_t next_batch_size(
    int64_t batch_size, const FindExecutableBatchSizeOptions& options);
} // namespace detail

/// Calls `function(batch_size)` with smaller and smaller batch sizes until it
/// does not run out of memory; returns its result. 128, 115, 103, 92, …, 1;
/// then throws. Other errors are passed on. What the function has made must be
/// gone when it throws: build the model, the optimizer and the loader inside.
///
/// \code
/// accel::find_executable_batch_size([&](int64_t batch_size) {
///   train(make_loader(batch_size));
/// });
/// \endcode
template <typename Function>
auto find_executable_batch_size(
    Function&& function, const FindExecutableBatchSizeOptions& options = {}) {
  using Result = std::decay_t<std::invoke_result_t<Function&, int64_t>>;
  using Stored = std::conditional_t<std::is_void_v<Result>, bool, Result>;
  int64_t batch_size = options.starting_batch_size();
  while (true) {
    TORCH_CHECK(
        batch_size > 0, "No executable batch size found, reached zero.");
    std::optional<Stored> result;
    try {
      if constexpr (std::is_void_v<Result>) {
        function(batch_size);
        result.emplace(true);
      } else {
        result.emplace(function(batch_size));
      }
    } catch (const std::exception& error) {
      if (!should_reduce_batch_size(error)) {
        throw;
      }
    }
    bool out_of_memory = !result.has_value();
    if (options.any_process()) {
      out_of_memory = options.any_process()(out_of_memory);
    }
    if (!out_of_memory) {
      if constexpr (std::is_void_v<Result>) {
        return;
      } else {
        return std::move(*result);
      }
    }
    result.reset();
    clear_device_cache();
    batch_size = detail::next_batch_size(batch_size, options);
  }
}

} // namespace accel
