#pragma once

namespace accel::detail {

/// What a program draws from LibTorch's generator before `main` begins (weights of
/// global models, global tensors) is the same on all processes of a launch: this
/// library is loaded before, and seeds it with what the launch has in common and
/// another one has not. Where each process has batches of its own, and nobody has
/// seeded the generator since, each draws its own numbers from here on, as without
/// that.
void forget_early_seed();

} // namespace accel::detail
