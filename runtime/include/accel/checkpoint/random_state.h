#pragma once

#include <accel/checkpoint/safetensors.h>
#include <accel/export.h>

#include <functional>

namespace accel::checkpoint {

/// The states of LibTorch's default generators: "torch_cpu", and "torch_cuda_0"
/// … (of other devices: "torch_xpu_0" …) for every device that this process
/// sees. Bytes, as `Generator::get_state`
/// returns them; the CPU's are those of Python's `torch.get_rng_state()`.
ACCEL_API StateDict random_state();

/// Puts the states back. devices that `state` does not know keep theirs; states of
/// devices that are not here are ignored, since they belong to no generator.
/// Throws where the CPU's is missing or a state has another size.
ACCEL_API void load_random_state(const StateDict& state);

/// The first half of `load_random_state`: compares, and returns what makes the
/// change.
ACCEL_API std::function<void()> prepare_random_state(const StateDict& state);

} // namespace accel::checkpoint
