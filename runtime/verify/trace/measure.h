#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "../trace_format.h"

namespace accel::verify {

/// The fingerprint of all elements, of more than 2^20 of one block of 4096 in
/// four; zeros for an undefined tensor. Reads
/// contiguous CPU tensors where they lie, without an operator call; others are
/// copied to the CPU first.
Fingerprint measure(const at::Tensor& tensor);

/// The same for at most 32,768 of the elements, always the same ones: eight
/// blocks, evenly spread.
Fingerprint measure_sample(const at::Tensor& tensor);

Dtype dtype_of(const at::Tensor& tensor);

/// The tensor itself, or, of one of libaccel's distributed tensors, the whole
/// one. All processes have the same tensors in the same order, so that all come
/// here.
at::Tensor whole_of(const at::Tensor& tensor);

} // namespace accel::verify
