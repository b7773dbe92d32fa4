#pragma once

// A simulated accelerator, for tests: a shared library that, once it is loaded
// (linked, or named by LD_PRELOAD), gives LibTorch devices "sim:0", "sim:1", …
// of the type PrivateUse1. They are as unforgiving as GPUs:
//
// - Memory of a device has an address that nobody can touch. Kernels use the
//   same memory at another one. A stray access of the host ends the process
//   with a message that names the operator.
// - Kernels are the CPU's, run later by a thread for each stream. Sizes of
//   results are known at once (LibTorch's meta kernels); where there are none
//   the host waits for its stream, as a GPU's kernels do whose results have
//   sizes that depend on values.
// - Freed memory goes back to the stream that it was made on and is overwritten
//   in that stream's order, whoever else still uses it (`record_stream` says who).
// - Copies from and to pinned memory with `non_blocking` happen later.
// - An error in a kernel is not seen by the call, but by what waits, and stays.
//
// Environment: ACCEL_SIM_DEVICES (2), ACCEL_SIM_MEMORY_MB per device (4096),
// ACCEL_SIM_LATENCY_US (200).

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#define ACCEL_SIM_API __attribute__((visibility("default")))

namespace accel::sim {

constexpr auto kSim = c10::DeviceType::PrivateUse1;

ACCEL_SIM_API c10::Device device(c10::DeviceIndex index);

/// How late work is that the host does not wait for by itself: all on streams
/// other than the default ones, and non-blocking copies.
ACCEL_SIM_API void set_latency(std::chrono::microseconds latency);

/// Bytes that a device has.
ACCEL_SIM_API void set_memory_limit(c10::DeviceIndex device, size_t bytes);

/// What the first failed kernel of a device said; empty where none has failed.
ACCEL_SIM_API std::string failure(c10::DeviceIndex device);
/// As a new process would find it.
ACCEL_SIM_API void repair(c10::DeviceIndex device);

/// Kernels and copies that were given to a stream so far.
ACCEL_SIM_API uint64_t work_given(c10::Stream stream);
/// Calls of an operator whose result's sizes the host had to wait for.
ACCEL_SIM_API uint64_t calls_that_waited();

/// Work of one's own for a stream; `name` for messages.
ACCEL_SIM_API void give(
    c10::Stream stream, const char* name, std::function<void()> work);

/// A tensor of the host over the memory of a device, as kernels see it. It does
/// not own the memory: it may be used by what a stream does, in its order.
ACCEL_SIM_API at::Tensor kernel_view(const at::Tensor& tensor);

} // namespace accel::sim
