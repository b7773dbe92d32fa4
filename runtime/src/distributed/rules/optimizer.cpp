#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// _foreach_ operators and fused optimizers.

namespace accel::distributed {

const Family& optimizer_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
