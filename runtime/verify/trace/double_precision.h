#pragma once

#include "../trace_format.h"

namespace accel::verify {

/// Makes this process compute in float64: LibTorch's default dtype, and whole
/// numbers that the program converts to float32 by name
/// (`images.to(torch::kFloat32)`, as LibTorch's own MNIST does). Tensors that it
/// makes in float32 by name stay what they are, but for `Widening::kAll`. What
/// operators convert for themselves is left alone in either case. To be called
/// once, before main.
void use_double_precision(Widening widening);

/// Around a `from_blob` of the program, which has float32 numbers in its memory
/// where it names no dtype, whatever the default has become (with
/// `Widening::kAll` also where it names float32). `begin_blob` gives
/// the `maker` (an at::TensorMaker*) that dtype; `end_blob` replaces the tensor
/// (an at::Tensor*) by its copy in float64, which does not follow later writes
/// to the memory.
void begin_blob(void* maker);
void end_blob(void* tensor);

} // namespace accel::verify
