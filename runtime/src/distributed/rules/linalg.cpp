#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Decompositions and solvers of batches of matrices.

namespace accel::distributed {

const Family& linalg_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
