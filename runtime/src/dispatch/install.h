#pragma once

namespace accel::detail {

/// Puts a kernel of the runtime before LibTorch's `embedding_renorm_`, which
/// changes the table that is looked into (embeddings.cpp). At run time, by
/// programs of several processes. May be called again.
void install_table_kernels();

} // namespace accel::detail
