#pragma once

namespace accel::distributed {

/// Registers the composite operators of LibTorch that read the memory of their
/// arguments, so that they take distributed tensors. Once; `install` calls it.
void install_composites();

} // namespace accel::distributed
