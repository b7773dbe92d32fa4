#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Pooling, upsampling, grid sampling, folding.

namespace accel::distributed {

const Family& pooling_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
