#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>

// Reductions: what is not reduced stays cut; where the cut dimension is
// reduced, the result is a part of a sum (a maximum, …).

namespace accel::distributed {
namespace {

/// What a reduction over some dimensions leaves.
struct Reduced {
  Sizes sizes;
  /// Where a dimension that is kept has gone; -1 for one that is reduced.
  Sizes dim_of;
};

/// No dimensions: all of them.
Reduced reduced(const at::Tensor& tensor, Sizes dims, bool keepdim) {
  Reduced out;
  for (auto& dim : dims) {
    dim = dim < 0 ? dim + tensor.dim() : dim;
  }
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const bool gone =
        dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end();
    out.dim_of.push_back(gone ? -1 : static_cast<int64_t>(out.sizes.size()));
    if (!gone) {
      out.sizes.push_back(tensor.size(d));
    } else if (keepdim) {
      out.sizes.push_back(1);
    }
  }
  return out;
}

/// sum and mean.
bool sum(Call& call) {
  if (!call.info().writes.empty() || !call.has(0)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate() || (place.is_partial() && !place.is_sum())) {
    return false;
  }
  const int dim = call.index("dim");
  const int keepdim = call.index("keepdim");
  const auto out = reduced(
      self,
      dim < 0 ? Sizes() : call.integers(dim),
      keepdim >= 0 && call.boolean(keepdim));
  const bool mean = call.name() == "aten::mean";
  call.use_local(0);
  call.run();
  if (place.is_partial()) {
    call.place_result(0, Partial(), out.sizes);
  } else if (out.dim_of[place.dim()] >= 0) {
    call.place_result(0, place.with_dim(out.dim_of[place.dim()]), out.sizes);
  } else {
    if (mean) {
      const int64_t n = self.size(place.dim());
      const auto share = static_cast<double>(call.rows(n, place)) / n;
      call.result() = call.local_result().mul(share);
    }
    call.place_result(0, Partial(), out.sizes);
  }
  return true;
}

} // namespace

const Family& reduction_family() {
  static const Family rows{
      {"aten::sum", sum, "any", "nothing; over the cut dimension the result is P"},
      {"aten::mean", sum, "any", "nothing; over the cut dimension the result is P"},
  };
  return rows;
}

} // namespace accel::distributed
