#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Sort, topk, argmax, cumulative sums: along one dimension.

namespace accel::distributed {

const Family& ordering_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
