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

Sizes order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dims = static_cast<int64_t>(sizes.size());
  Sizes order;
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] != 1) {
      order.push_back(d);
    }
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[a] != strides[b] ? strides[a] > strides[b] : a < b;
  });
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] == 1) {
      const auto* behind = std::find_if(
          order.begin(), order.end(), [&](int64_t o) { return o > d; });
      order.insert(order.begin() + (behind - order.begin()), d);
    }
  }
  return order;
}

bool is_repeated(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] == 0) {
      return true;
    }
  }
  return false;
}

Sizes strides_of_copy(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dense = at::infer_dense_strides(sizes, strides);
  return {dense.begin(), dense.end()};
}

at::Tensor copy_in_order(const at::Tensor& local, c10::IntArrayRef order) {
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

bool is_dense_as(const at::Tensor& local, c10::IntArrayRef order) {
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t n = local.size(order[i]);
    if (n != 1 && local.stride(order[i]) != step) {
      return false;
    }
    step *= std::max<int64_t>(n, 1);
  }
  return true;
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

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (like.is_contiguous()) {
    return tensor;
  }
  const auto order = like.is_non_overlapping_and_dense()
      ? order_of(like.sizes(), like.strides())
      : order_of(like.sizes(), strides_of_copy(like.sizes(), like.strides()));
  return is_dense_as(tensor, order) ? tensor : copy_in_order(tensor, order);
}

at::Tensor repeated_as(const at::Tensor& tensor, const at::Tensor& like) {
  if (!is_repeated(like.sizes(), like.strides())) {
    return tensor;
  }
  auto result = tensor;
  for (int64_t d = 0; d < like.dim(); ++d) {
    if (like.size(d) > 1 && like.stride(d) == 0) {
      result = result.narrow(d, 0, 1);
    }
  }
  return result.expand(like.sizes());
}

} // namespace accel::distributed
