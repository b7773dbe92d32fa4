#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Cells and fused recurrent layers.

namespace accel::distributed {

const Family& recurrent_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
