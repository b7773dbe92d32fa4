#pragma once

namespace accel::verify {

/// Makes this process compute in float64: LibTorch's default dtype, and whole
/// numbers that the program converts to float32 by name
/// (`images.to(torch::kFloat32)`, as LibTorch's own MNIST does). Tensors that it
/// makes in float32 by name, or from its own memory, stay what they are. To be
/// called once, before main.
void use_double_precision();

} // namespace accel::verify
