#pragma once

#include "distributed/part.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

// How a parameter lies in the message that gathers its unit. It is gathered along the
// unit's axis only: a weight that is cut along a further one, too (tp), stays so.

namespace accel::distributed {

/// The part of the innermost axis, which holds a plain tensor.
Part& innermost(Part& part);

/// Whether the message can carry it: the same on all processes.
bool can_be_member(const Part& part);

/// What is gathered of one: a plain tensor that is whole along the unit's axis, and this
/// process's part along further ones.
struct GatheredMember {
  explicit GatheredMember(Part& part);

  int64_t bytes() const;
  /// Where in the bytes of the processes' parts, one behind the other, that of a process
  /// begins and ends.
  std::pair<int64_t, int64_t> bytes_of(int64_t rank) const;
  /// Whether the processes' parts, one behind the other, are its memory. Columns, which
  /// are cut where a further axis has the rows, are not: `put_together` makes it of them.
  bool is_in_rows() const {
    return dim == 0;
  }

  Part& part;
  /// The dimension that is cut along the unit's axis.
  int64_t dim;
  Sizes sizes;
  Sizes strides;
  int64_t element_size;
};

/// Copies the processes' parts, which lie one behind the other in `parts` (bytes), to
/// their columns of `whole`.
void put_together(
    const GatheredMember& member,
    const at::Tensor& parts,
    const at::Tensor& whole);

/// A tensor in the places of `like`, out of this process's part. `whole`: a member of
/// which that has all rows, and `like` is what the member is along further axes.
at::Tensor in_places_of(
    const at::Tensor& like,
    at::Tensor plain,
    const GatheredMember* whole = nullptr);

} // namespace accel::distributed
