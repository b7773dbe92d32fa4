#include "distributed/memory_order.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>

namespace accel::distributed {

void dense_strides(
    c10::IntArrayRef sizes,
    c10::IntArrayRef order,
    Sizes& strides) {
  strides.resize(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(sizes[order[i]], 1);
  }
}

Sizes channels_last(c10::IntArrayRef sizes) {
  const auto strides = sizes.size() == 4
      ? c10::get_channels_last_strides_2d(sizes)
      : c10::get_channels_last_strides_3d(sizes);
  return {strides.begin(), strides.end()};
}

Sizes usual_strides(c10::IntArrayRef sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

Sizes order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dims = static_cast<int64_t>(sizes.size());
  Sizes order;
  for (int64_t d = 0; d < dims; ++d) {
    order.push_back(d);
  }
  // Of a dimension of one entry and one of more that have the same stride, the
  // former lies further in: the stride is what lies within.
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (strides[a] != strides[b]) {
      return strides[a] > strides[b];
    }
    return (sizes[a] == 1) != (sizes[b] == 1) ? sizes[b] == 1 : a < b;
  });
  return order;
}

Sizes order_beside(
    int64_t cut,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides) {
  auto order = order_of(sizes, strides);
  order.erase(std::find(order.begin(), order.end(), cut));
  const auto* behind =
      std::find_if(order.begin(), order.end(), [&](int64_t d) { return d > cut; });
  order.insert(order.begin() + (behind - order.begin()), cut);
  return order;
}

Sizes strides_in_part(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    c10::IntArrayRef part) {
  Sizes of_part(strides.begin(), strides.end());
  for (size_t cut = 0; cut < sizes.size(); ++cut) {
    if (part[cut] == sizes[cut]) {
      continue;
    }
    const int64_t n = std::max<int64_t>(sizes[cut], 1);
    const int64_t rows = std::max<int64_t>(part[cut], 1);
    for (auto& stride : of_part) {
      if (stride >= strides[cut] * n) {
        // Upwards: only that of a dimension of one entry can be no multiple of n,
        // and where it was the larger of two it stays so.
        stride = (stride * rows + n - 1) / n;
      } else if (stride > strides[cut]) {
        // A dimension of one entry, which stays between the cut one and those
        // outside of it.
        stride = std::min(stride, strides[cut] * rows);
      }
    }
  }
  return of_part;
}

Sizes strides_without_gaps(c10::IntArrayRef sizes, c10::IntArrayRef like) {
  if (has_usual_strides(sizes, like)) {
    return {like.begin(), like.end()};
  }
  Sizes dense;
  dense_strides(sizes, order_of(sizes, like), dense);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && dense[d] != like[d]) {
      const auto of_copy = at::infer_dense_strides(sizes, like);
      return {of_copy.begin(), of_copy.end()};
    }
  }
  return {like.begin(), like.end()};
}

namespace {

/// The dimensions of the parts of a tensor that is distributed along further axes lie
/// in the same order.
at::Tensor copy_in_order(const at::Tensor& local, c10::IntArrayRef order) {
  if (const Part* part = part_of(local)) {
    Sizes strides;
    dense_strides(part->sizes, order, strides);
    return make_tensor(
        *part->axis, copy_in_order(part->local, order), part->placement,
        part->sizes, strides, /*exact=*/true);
  }
  if (std::is_sorted(order.begin(), order.end())) {
    return local.clone(at::MemoryFormat::Contiguous);
  }
  Sizes back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[order[i]] = static_cast<int64_t>(i);
  }
  return local.permute(order)
      .clone(at::MemoryFormat::Contiguous)
      .permute(back);
}

} // namespace

at::Tensor laid_out(const at::Tensor& local, c10::IntArrayRef strides) {
  if (local.strides() == strides) {
    return local;
  }
  bool as_it_is = true;
  for (int64_t d = 0; d < local.dim(); ++d) {
    as_it_is =
        as_it_is && (local.size(d) == 1 || local.stride(d) == strides[d]);
  }
  if (const Part* part = part_of(local)) {
    return as_it_is && part->view == nullptr
        ? make_tensor(
              *part->axis, part->local, part->placement, part->sizes, strides,
              /*exact=*/true)
        : copy_in_order(local, order_of(local.sizes(), strides));
  }
  if (as_it_is) {
    return local.as_strided(local.sizes(), strides);
  }
  auto copy = at::empty_strided(local.sizes(), strides, local.options());
  copy.copy_(local);
  return copy;
}

namespace {

/// Of two dimensions of a result, which lies further in, as TensorIterator decides
/// it: the first operand that is repeated along neither says. Greater than 0 where
/// it is `b`, smaller where it is `a`; 0: nobody says.
int inner_of(
    const std::vector<Sizes>& operands,
    c10::IntArrayRef sizes,
    int64_t a,
    int64_t b) {
  for (const auto& strides : operands) {
    if (strides[a] == 0 || strides[b] == 0) {
      continue;
    }
    if (strides[a] != strides[b]) {
      return strides[a] < strides[b] ? -1 : 1;
    }
    if (sizes[a] > sizes[b]) {
      return 1;
    }
  }
  return 0;
}

} // namespace

Sizes strides_of_result(
    const std::vector<Sizes>& operands,
    c10::IntArrayRef sizes) {
  const auto dims = static_cast<int64_t>(sizes.size());
  // From the innermost dimension outwards.
  Sizes order;
  for (int64_t d = dims; d-- > 0;) {
    order.push_back(d);
  }
  // An insertion sort: the comparison is no order, and its outcome depends on how
  // one sorts.
  for (int64_t i = 1; i < dims; ++i) {
    int64_t place = i;
    for (int64_t j = i; j-- > 0;) {
      const int inner = inner_of(operands, sizes, order[j], order[place]);
      if (inner > 0) {
        std::swap(order[j], order[place]);
        place = j;
      } else if (inner < 0) {
        break;
      }
    }
  }
  std::reverse(order.begin(), order.end());
  Sizes strides;
  dense_strides(sizes, order, strides);
  return strides;
}

Sizes strides_of_pointwise(
    const std::vector<at::Tensor>& operands,
    c10::IntArrayRef sizes) {
  const auto dims = static_cast<int64_t>(sizes.size());
  std::vector<Sizes> strides;
  bool alike = true; // no operand is repeated
  bool contiguous = true;
  bool all_last = true; // channels-last
  for (const auto& tensor : operands) {
    alike = alike && tensor.sizes() == sizes;
    contiguous = contiguous && tensor.is_contiguous();
    all_last =
        all_last && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
    const int64_t offset = dims - tensor.dim();
    strides.emplace_back(dims, 0);
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const bool repeated = tensor.size(d) == 1 && sizes[offset + d] != 1;
      strides.back()[offset + d] = repeated ? 0 : tensor.stride(d);
    }
  }
  if (alike && contiguous) {
    return usual_strides(sizes);
  }
  if (alike && all_last) {
    return channels_last(sizes);
  }
  if (alike && strides_without_gaps(sizes, strides[0]) == strides[0] &&
      std::all_of(strides.begin(), strides.end(), [&](const Sizes& other) {
        return other == strides[0];
      })) {
    return strides[0];
  }
  return strides_of_result(strides, sizes);
}

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (has_usual_strides(like)) {
    // A range of columns has gaps and may keep them: it is in order.
    return tensor.is_contiguous() ? laid_out(tensor, usual_strides(tensor.sizes()))
                                  : tensor;
  }
  return laid_out(
      tensor,
      strides_in_part(
          like.sizes(), strides_without_gaps(like.sizes(), like.strides()),
          tensor.sizes()));
}

at::Tensor whole_as(const at::Tensor& whole, const at::Tensor& like) {
  if (whole.strides() == like.strides()) {
    return whole;
  }
  // Of what is repeated one entry is written.
  const auto once = [&](at::Tensor result) {
    for (int64_t d = 0; d < like.dim(); ++d) {
      if (like.size(d) > 1 && like.stride(d) == 0) {
        result = result.narrow(d, 0, 1);
      }
    }
    return result;
  };
  if (part_of(whole) != nullptr) {
    const auto dense = once(in_order_of(whole, like));
    const Part* part = part_of(dense);
    if (dense.sizes() != like.sizes() || part->view != nullptr) {
      return dense.expand(like.sizes());
    }
    auto result = make_tensor(
        *part->axis, part->local, part->placement, part->sizes, dense.strides(),
        /*exact=*/true);
    // The gaps are not in its parts, but whoever gathers it further makes them.
    part_of(result)->strides.assign(
        like.strides().begin(), like.strides().end());
    result.unsafeGetTensorImpl()->set_sizes_and_strides(
        like.sizes(), like.strides());
    return result;
  }
  if (like.is_non_overlapping_and_dense()) {
    return laid_out(whole, like.strides());
  }
  auto result = at::empty_strided(like.sizes(), like.strides(), whole.options());
  once(result).copy_(once(whole));
  return result;
}

} // namespace accel::distributed
