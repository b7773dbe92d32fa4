#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Scaled dot product attention and multi-head attention, in all fused forms.

namespace accel::distributed {

const Family& attention_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
