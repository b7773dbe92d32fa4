#include "distributed/rules/table.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>

#include <optional>

// Views of parts. A rule here must return a view of the local tensor: the
// result shares memory with it, so that writes are seen through both.

namespace accel::distributed {
namespace {

/// Where a cut goes when dimensions are merged and split: `[7, T, C]` cut at 4
/// becomes `[7 * T, C]` cut at 4 * T. Nothing where the parts of the result
/// would not be contiguous ranges of one dimension.
std::optional<Placement> through_view(
    const Axis& axis,
    c10::IntArrayRef in,
    c10::IntArrayRef out,
    const Placement& place) {
  const int64_t n_in = in.size();
  const int64_t n_out = out.size();
  int64_t i = 0;
  int64_t o = 0;
  while (i < n_in || o < n_out) {
    // The smallest groups of dimensions that have the same number of elements.
    const int64_t i0 = i;
    const int64_t o0 = o;
    int64_t of_in = i < n_in ? in[i] : 1;
    int64_t of_out = o < n_out ? out[o] : 1;
    i = std::min(i + 1, n_in);
    o = std::min(o + 1, n_out);
    while (of_in != of_out) {
      if (of_in < of_out) {
        if (i >= n_in) {
          return {};
        }
        of_in *= in[i++];
      } else {
        if (o >= n_out) {
          return {};
        }
        of_out *= out[o++];
      }
    }
    if (place.dim() < i0 || place.dim() >= i) {
      continue;
    }
    for (int64_t k = i0; k < place.dim(); ++k) {
      if (in[k] != 1) {
        return {}; // cut inside of an outer dimension
      }
    }
    int64_t inner = 1;
    for (int64_t k = place.dim() + 1; k < i; ++k) {
      inner *= in[k];
    }
    int64_t dim = o0;
    while (dim < o && out[dim] == 1) {
      ++dim;
    }
    if (dim == o) {
      return {};
    }
    int64_t inner_out = 1;
    for (int64_t k = dim + 1; k < o; ++k) {
      inner_out *= out[k];
    }
    if (inner == inner_out) {
      return place.with_dim(dim);
    }
    std::vector<int64_t> points;
    for (int64_t rank = 0; rank < axis.size(); ++rank) {
      const int64_t begin =
          axis.range(in[place.dim()], place.cut(), rank).first * inner;
      if (begin % inner_out != 0) {
        return {};
      }
      points.push_back(begin / inner_out);
    }
    points.push_back(out[dim]);
    return Shard(dim, axis.cut_at(std::move(points)));
  }
  return {};
}

/// view and _unsafe_view.
bool view(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  const auto asked = call.integers(1);
  const auto inferred = at::infer_size(asked, self.numel());
  const Sizes sizes(inferred.begin(), inferred.end());
  if (place.is_partial()) {
    call.use_local(0);
    call.set(1, std::vector<int64_t>(sizes.begin(), sizes.end()));
    call.run();
    call.place_result(0, place, sizes);
    return true;
  }
  const auto result = through_view(call.axis(), self.sizes(), sizes, place);
  if (!result) {
    return false;
  }
  std::vector<int64_t> local_sizes(sizes.begin(), sizes.end());
  local_sizes[result->dim()] = call.rows(sizes[result->dim()], *result);
  call.use_local(0);
  call.set(1, std::move(local_sizes));
  call.run();
  call.place_result(0, *result, sizes);
  return true;
}

/// detach, alias: the same in every place.
bool alias(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  call.use_local(0);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

bool swapped(Call& call, int64_t a, int64_t b) {
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  Sizes sizes(call.tensor(0).sizes().begin(), call.tensor(0).sizes().end());
  Placement result = place;
  if (!sizes.empty()) {
    std::swap(sizes[a], sizes[b]);
    if (place.is_shard()) {
      result = place.with_dim(
          place.dim() == a ? b : place.dim() == b ? a : place.dim());
    }
  }
  call.use_local(0);
  call.run();
  call.place_result(0, result, sizes);
  return true;
}

bool transpose(Call& call) {
  const int64_t dims = call.tensor(0).dim();
  return swapped(call, call.dim(1, dims), call.dim(2, dims));
}

bool t(Call& call) {
  const bool matrix = call.tensor(0).dim() == 2;
  return matrix ? swapped(call, 0, 1) : alias(call);
}

bool permute(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  Sizes sizes;
  Placement result = place;
  for (int64_t dim : call.integers(1)) {
    dim = dim < 0 ? dim + self.dim() : dim;
    if (place.is_shard(dim)) {
      result = place.with_dim(static_cast<int64_t>(sizes.size()));
    }
    sizes.push_back(self.size(dim));
  }
  call.use_local(0);
  call.run();
  call.place_result(0, result, sizes);
  return true;
}

bool unsqueeze(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  const int64_t dim = call.dim(1, self.dim() + 1);
  Sizes sizes(self.sizes().begin(), self.sizes().end());
  sizes.insert(sizes.begin() + dim, 1);
  const auto result = place.is_shard() && place.dim() >= dim
      ? place.with_dim(place.dim() + 1)
      : place;
  call.use_local(0);
  call.run();
  call.place_result(0, result, sizes);
  return true;
}

bool expand(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_replicate()) {
    return false;
  }
  Sizes sizes = call.integers(1);
  const auto offset = static_cast<int64_t>(sizes.size()) - self.dim();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (sizes[offset + d] < 0) {
      sizes[offset + d] = self.size(d);
    }
  }
  std::vector<int64_t> local_sizes(sizes.begin(), sizes.end());
  Placement result = place;
  if (place.is_shard()) {
    if (sizes[offset + place.dim()] != self.size(place.dim())) {
      return false; // an error, or one row that is repeated
    }
    result = place.with_dim(place.dim() + offset);
    local_sizes[result.dim()] = call.rows(sizes[result.dim()], place);
  }
  call.use_local(0);
  call.set(1, std::move(local_sizes));
  call.run();
  call.place_result(0, result, sizes);
  return true;
}

} // namespace

const Family& view_family() {
  static const Family rows{
      {"aten::view", view, "a dimension that stays outermost where it is merged or split; P", "nothing"},
      {"aten::_unsafe_view", view, "as view", "nothing"},
      {"aten::detach", alias, "any", "nothing"},
      {"aten::alias", alias, "any", "nothing"},
      {"aten::transpose", transpose, "any", "nothing"},
      {"aten::t", t, "any", "nothing"},
      {"aten::permute", permute, "any", "nothing"},
      {"aten::unsqueeze", unsqueeze, "any", "nothing"},
      {"aten::expand", expand, "any", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed
