#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Index, gather, scatter, masks and embeddings.

namespace accel::distributed {

const Family& indexing_family() {
  static const Family rows{};
  return rows;
}

} // namespace accel::distributed
