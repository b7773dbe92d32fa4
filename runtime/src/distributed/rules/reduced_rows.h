#pragma once

#include "distributed/call.h"

namespace accel::distributed::reduced_rows_rules {

/// scatter_reduce and index_reduce whose source or index is cut in the dimension that is
/// indexed: each process reduces its own rows, and what they are reduced to is reduced over
/// the processes. `in_index` is the dimension of the index that belongs to the rows.
/// False where they are not cut so.
bool reduce_cut_rows(Call& call, int64_t dim, int64_t in_index);

/// scatter of a number: each process finds which entries its part of the index names. False
/// where neither the index nor the tensor is cut in dimension `dim`.
bool set_named_entries(Call& call, int64_t dim);

} // namespace accel::distributed::reduced_rows_rules
