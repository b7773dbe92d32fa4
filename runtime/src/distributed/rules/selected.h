#pragma once

#include "distributed/call.h"

namespace accel::distributed {

/// Where the entries lie that a mask selects of rows that are cut: the processes'
/// entries one behind the other. Null where a process has none, for parts are not
/// empty. Collective.
Cut cut_of_selected(const Call& call, const at::Tensor& local_mask);

} // namespace accel::distributed
