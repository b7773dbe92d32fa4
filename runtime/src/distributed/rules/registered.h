#pragma once

#include "distributed/call.h"

namespace accel::distributed {

/// The rule of an operator that the program has registered (register_sharding); null
/// where it has not, which it then can no more.
Rule registered_rule(const c10::OperatorHandle& op);

} // namespace accel::distributed
