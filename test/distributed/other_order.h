#pragma once

#include "sample_calls.h"

// Tensors that do not lie in the order of their dimensions.

namespace accel::distributed::test {

/// Lays images of all calls channels-last and matrices by columns. Calls to which
/// plain tensors then give other values are taken out (`refused` counts them):
/// several kernels read memory as if it were in order, and leave it to others to
/// see to that. So are those whose results' order no process could know.
void lay_out_in_other_order(SampleCalls& all);

} // namespace accel::distributed::test
