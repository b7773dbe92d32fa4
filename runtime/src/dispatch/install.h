#pragma once

namespace accel::detail {

/// Puts the runtime's kernels before LibTorch's for batch norm, for what draws
/// random numbers and for losses over classes, so that N processes that each
/// hold a part of a batch (`GradientState::share`) compute what one device
/// computes with the complete batch (batch_norm.cpp, random.cpp,
/// class_losses.cpp), or stop (row_checks.cpp, embeddings.cpp).
///
/// At run time and only where needed (`match_single_device`, more than one
/// process), because a program that never installs them runs LibTorch's own
/// kernels without any detour. Installed kernels stay until the program ends;
/// without a share they do exactly what LibTorch does. May be called again.
void install_dispatch_kernels();

/// The one kernel that every program of several processes has, however they
/// share the work: embeddings with `max_norm` change the table that is looked
/// into (embeddings.cpp), at an operation that nothing else calls.
void install_table_kernels();

} // namespace accel::detail
