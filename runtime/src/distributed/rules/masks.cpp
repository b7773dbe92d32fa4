#include "distributed/rules/common.h"
#include "distributed/rules/selected.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// What a mask selects, and where. Entries of different processes come one behind the other,
// in the order of the rows.

namespace accel::distributed::mask_rules {
namespace {

/// Whether the rows of a tensor and of a mask of the same sizes are cut, and the
/// mask can be counted.
bool selects_rows(const Call& call) {
  const auto place = call.place(0);
  return place.is_shard(0) && call.tensor(0).sizes() == call.tensor(1).sizes() &&
      call.tensor(1).scalar_type() == at::kBool && call.axis().further() == 0;
}

/// self, mask: the selected entries in the order of the rows.
bool masked_select(Call& call) {
  if (has_out(call) || !selects_rows(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto mask = call.local_as(call.tensor(1), place);
  const auto cut = cut_of_selected(call, mask);
  if (!cut) {
    return false;
  }
  const Sizes sizes{cut->points.back()};
  call.use_local(0);
  call.set(1, mask);
  call.run();
  call.place_result(0, Shard(0, call.axis().cut_at(cut->points)), sizes);
  return true;
}

/// self, mask, source: the selected entries are the source's, in order.
bool masked_scatter(Call& call) {
  if (has_out(call) || !selects_rows(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const at::Tensor source = call.tensor(2);
  const auto place = call.place(0);
  const auto mask = call.local_as(call.tensor(1), place);
  const auto cut = cut_of_selected(call, mask);
  if (!cut || source.numel() < cut->points.back()) {
    return false;
  }
  if (source.dim() == 1 && source.size(0) == cut->points.back()) {
    call.use(2, Shard(0, call.axis().cut_at(cut->points)));
  } else {
    const int64_t begin = cut->points[call.axis().rank()];
    const auto whole = call.local_as(source, Replicate()).flatten();
    call.set(2, whole.slice(0, begin));
  }
  call.use_local(0);
  call.set(1, mask);
  call.run();
  leave_self(call, self, place);
  return true;
}

/// The places of entries of rows that are cut: those of each process, counted from its
/// first row on.
bool nonzero(Call& call) {
  const auto place = call.place(0);
  if (has_out(call) || !place.is_shard(0) || call.axis().further() != 0) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto cut = cut_of_selected(call, call.local(0));
  if (!cut) {
    return false;
  }
  call.use_local(0);
  call.run();
  const int64_t begin = call.axis().range(self.size(0), place.cut()).first;
  call.local_result().select(1, 0).add_(begin);
  const Sizes sizes{cut->points.back(), self.dim()};
  // LibTorch lays places down one dimension behind the other, on the CPU.
  const Sizes like = self.is_cpu() ? Sizes{1, sizes[0]} : Sizes();
  call.place_result(
      0, Shard(0, call.axis().cut_at(cut->points)), sizes, like);
  return true;
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::masked_fill", pointwise, "any", "a mask that is cut differently"},
      {"aten::masked_fill_", pointwise, "any", "a mask that is cut differently"},
      {"aten::masked_select", masked_select, "S(0) of a mask of the same sizes", "the number of selected entries of each process"},
      {"aten::nonzero", nonzero, "S(0)", "the number of entries of each process"},
      {"aten::masked_scatter", masked_scatter, "S(0) of a mask of the same sizes", "the number of selected entries of each process; the source where it is cut otherwise"},
      {"aten::masked_scatter_", masked_scatter, "S(0) of a mask of the same sizes", "the number of selected entries of each process; the source where it is cut otherwise"},
  };
  return rows;
}

} // namespace accel::distributed::mask_rules
