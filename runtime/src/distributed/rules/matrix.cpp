#include "distributed/rules/common.h"
#include "distributed/rules/product.h"

// Matrix products. Rows of the left and columns of the right factor stay where
// they are; where the dimension is cut over which is summed, the result is a
// part of a sum. Where the factors ask for different ways, the one is taken that
// sends least (product.h).

namespace accel::distributed::matrix_rules {
namespace {

/// The same for `[b, n, k] x [b, k, m]`.
bool choose_batched(Factors factors, Product& out) {
  auto& left = factors.left;
  auto& right = factors.right;
  if (left.is_shard(0) || right.is_shard(0)) {
    const auto rows = left.is_shard(0) ? left : right;
    out = {rows, rows, rows};
    return true;
  }
  left = left.is_shard() ? left.with_dim(left.dim() - 1) : left;
  right = right.is_shard() ? right.with_dim(right.dim() - 1) : right;
  if (!choose(factors, out)) {
    return false;
  }
  for (auto* placement : {&out.left, &out.right, &out.result}) {
    if (placement->is_shard()) {
      *placement = placement->with_dim(placement->dim() + 1);
    }
  }
  return true;
}

/// A tensor that is added to a result of `dims` dimensions and that placement:
/// dimensions are counted from the back, as it is broadcast.
Placement like_result(
    const at::Tensor& tensor,
    const Placement& result,
    int64_t dims) {
  if (!result.is_shard()) {
    return result;
  }
  const int64_t dim = tensor.dim() - (dims - result.dim());
  return dim < 0 || tensor.size(dim) == 1 ? Replicate() : result.with_dim(dim);
}

/// Does `self + product` with the factors in arguments 1 and 2, or in place of
/// self, which must then lie like the result.
bool add_product(Call& call, const Product& product, const Sizes& sizes) {
  const at::Tensor self = call.tensor(0);
  const auto dims = static_cast<int64_t>(sizes.size());
  const bool in_place = call.info().is_in_place;
  if (in_place &&
      (call.place(0) != product.result ||
       self.sizes() != c10::IntArrayRef(sizes))) {
    return false;
  }
  call.use(0, like_result(self, product.result, dims));
  call.use(1, product.left);
  call.use(2, product.right);
  call.run();
  if (in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, product.result, sizes);
  }
  return true;
}

/// Neither `out=`, nor in place of a tensor that all processes have.
bool can_write(const Call& call) {
  return call.info().writes.empty() ||
      (call.info().is_in_place && call.info().writes.size() == 1 &&
       call.part(call.tensor(0)) != nullptr);
}

/// Where self is written in place and cut: the factors that belong to its part.
void follow_self(const Call& call, Product& product, int64_t rows, int64_t columns) {
  const auto self = call.place(0);
  if (!call.info().is_in_place || !self.is_shard()) {
    return;
  }
  if (self.is_shard(rows)) {
    product = {self, Replicate(), self};
  } else if (self.is_shard(columns)) {
    product = {Replicate(), self, self};
  }
}

/// Whether one of the factors is no strided tensor.
bool has_sparse(const Call& call, size_t left) {
  return call.tensor(left).layout() != at::kStrided ||
      call.tensor(left + 1).layout() != at::kStrided;
}

/// A sparse matrix between the rows of a batch, as a graph's, in argument `left`: of
/// the result each process makes its own rows; or, where the batch lies in columns,
/// its own columns.
bool choose_sparse(Call& call, size_t left, Product& out) {
  const at::Tensor matrix = call.tensor(left);
  const auto rows = call.place(left + 1);
  if (matrix.layout() != at::kSparse || matrix.sparse_dim() != 2 ||
      call.part(matrix) != nullptr ||
      call.tensor(left + 1).layout() != at::kStrided || !rows.is_shard() ||
      (rows.is_shard(0) && matrix.size(0) != matrix.size(1))) {
    return false;
  }
  out = {Replicate(), rows.is_shard(0) ? Replicate() : rows, rows};
  if (rows.is_shard(0)) {
    const auto [begin, end] = call.axis().range(
        matrix.size(0), rows.cut(), call.axis().rank());
    call.set(left, at::narrow_copy(matrix, 0, begin, end - begin));
  }
  return true;
}

bool mm(Call& call) {
  Product product;
  const Sizes sizes{call.tensor(0).size(0), call.tensor(1).size(1)};
  if (!call.info().writes.empty() ||
      !(has_sparse(call, 0) ? choose_sparse(call, 0, product)
                            : choose(factors_of(call, 0, 1), product))) {
    return false;
  }
  call.use(0, product.left);
  call.use(1, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

/// Its kernels want more than 16 rows and inner and outer sizes of multiples of
/// 8: only rows are cut, where every process has enough.
bool int_mm(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || !place.is_shard(0)) {
    return false;
  }
  const int64_t n = call.tensor(0).size(0);
  for (int64_t rank = 0; rank < call.axis().size(); ++rank) {
    const auto [begin, end] = call.axis().range(n, place.cut(), rank);
    if (end - begin <= 16) {
      return false;
    }
  }
  return mm(call);
}

bool addmm(Call& call) {
  Product product;
  const Sizes sizes{call.tensor(1).size(0), call.tensor(2).size(1)};
  if (has_sparse(call, 1)) {
    return call.info().writes.empty() && choose_sparse(call, 1, product) &&
        add_product(call, product, sizes);
  }
  const bool chosen = choose(factors_of(call, 1, 2), product);
  if (!can_write(call) ||
      (!chosen && !(call.info().is_in_place && call.place(0).is_shard()))) {
    return false;
  }
  follow_self(call, product, 0, 1);
  return add_product(call, product, sizes);
}

/// With a function that is not linear behind it: the sum must be complete.
bool addmm_activation(Call& call) {
  Product product;
  if (!call.info().writes.empty() ||
      !choose(factors_of(call, 1, 2), product) ||
      !product.result.is_shard()) {
    return false;
  }
  return add_product(
      call, product, {call.tensor(1).size(0), call.tensor(2).size(1)});
}

bool bmm(Call& call) {
  Product product;
  if (!call.info().writes.empty() ||
      !choose_batched(factors_of(call, 0, 1), product)) {
    return false;
  }
  const Sizes sizes{
      call.tensor(0).size(0), call.tensor(0).size(1), call.tensor(1).size(2)};
  call.use(0, product.left);
  call.use(1, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

bool baddbmm(Call& call) {
  Product product;
  const bool chosen = choose_batched(factors_of(call, 1, 2), product);
  const bool writes = call.info().is_in_place;
  const auto self = call.place(0);
  if (!can_write(call) || (!chosen && !(writes && self.is_shard()))) {
    return false;
  }
  if (writes && self.is_shard(0)) {
    product = {self, self, self};
  } else {
    follow_self(call, product, 1, 2);
  }
  const auto& left = call.tensor(1);
  return add_product(
      call, product, {left.size(0), left.size(1), call.tensor(2).size(2)});
}

/// The sum over a batch of products.
bool addbmm(Call& call) {
  Product product;
  if (!can_write(call) ||
      !choose_batched(factors_of(call, 1, 2), product)) {
    return false;
  }
  if (product.result.is_shard(0)) {
    product.result = Partial();
  } else if (product.result.is_shard()) {
    product.result = product.result.with_dim(product.result.dim() - 1);
  }
  return add_product(
      call, product, {call.tensor(1).size(1), call.tensor(2).size(2)});
}

bool mv(Call& call) {
  Product product;
  if (!call.info().writes.empty() ||
      !choose(factors_of(call, 0, 1), product)) {
    return false;
  }
  const Sizes sizes{call.tensor(0).size(0)};
  call.use(0, product.left);
  call.use(1, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

bool addmv(Call& call) {
  Product product;
  const bool chosen = choose(factors_of(call, 1, 2), product);
  if (!can_write(call) ||
      (!chosen && !(call.info().is_in_place && call.place(0).is_shard()))) {
    return false;
  }
  follow_self(call, product, 0, -1);
  return add_product(call, product, {call.tensor(1).size(0)});
}

/// dot, vdot: both are cut alike, or one is a part of a sum.
bool dot(Call& call) {
  const auto left = call.place(0);
  const auto right = call.place(1);
  const auto cut = left.is_shard() ? left : right;
  const bool same = call.tensor(0).sizes() == call.tensor(1).sizes();
  if (!call.info().writes.empty() || !same) {
    return false;
  }
  if (cut.is_shard()) {
    call.use(0, cut);
    call.use(1, cut);
  } else if (left.is_sum() && !right.is_partial()) {
    call.use_local(0);
    call.use_whole(1);
  } else if (right.is_sum() && !left.is_partial()) {
    call.use_whole(0);
    call.use_local(1);
  } else {
    return false;
  }
  call.run();
  call.place_result(0, Partial(), c10::IntArrayRef{});
  return true;
}

/// self plus the outer product of two vectors.
bool addr(Call& call) {
  const auto left = call.place(1);
  const auto right = call.place(2);
  Product product;
  bool chosen = true;
  if (left.is_shard(0)) {
    product = {left, Replicate(), left};
  } else if (right.is_shard(0)) {
    product = {Replicate(), right, right.with_dim(1)};
  } else if (left.is_sum() && !right.is_partial()) {
    product = {left, Replicate(), Partial()};
  } else if (right.is_sum() && !left.is_partial()) {
    product = {Replicate(), right, Partial()};
  } else {
    chosen = false;
  }
  const auto self = call.place(0);
  const bool writes = call.info().is_in_place;
  if (!can_write(call) || (!chosen && !(writes && self.is_shard()))) {
    return false;
  }
  if (writes && self.is_shard(0)) {
    product = {self, Replicate(), self};
  } else if (writes && self.is_shard(1)) {
    product = {Replicate(), self.with_dim(0), self};
  }
  return add_product(
      call, product, {call.tensor(1).size(0), call.tensor(2).size(0)});
}

/// linear, where it is not taken apart (inference mode): input `[…, k]`, weight
/// `[m, k]`, bias `[m]`.
bool linear(Call& call) {
  const auto input = call.place(0);
  const auto weight = call.place(1);
  const int64_t last = call.tensor(0).dim() - 1;
  if (!call.info().writes.empty() || last < 0 || call.tensor(1).dim() != 2) {
    return false;
  }
  // As the product with the weight transposed, of which the input's dimensions but
  // the last one are the rows.
  const bool rows = input.is_shard() && input.dim() < last;
  const int64_t features = call.tensor(0).size(last);
  const Factors factors{
      input.is_shard() ? input.with_dim(rows ? 0 : 1) : input,
      weight.is_shard() ? weight.with_dim(1 - weight.dim()) : weight,
      features == 0 ? 0 : call.tensor(0).numel() / features,
      features,
      call.tensor(1).size(0),
      call.axis().size(),
      comes_whole(call, call.tensor(0)),
      comes_whole(call, call.tensor(1))};
  Product product;
  if (!input.is_shard() && !weight.is_shard()) {
    return false;
  }
  if (!choose(factors, product)) {
    return false;
  }
  auto bias = product.result;
  if (product.left.is_shard(0)) {
    product = {input, Replicate(), input};
    bias = Replicate();
  } else if (product.right.is_shard(1)) {
    bias = product.right.with_dim(0);
    product = {Replicate(), bias, bias.with_dim(last)};
  } else {
    product.left = product.left.with_dim(last);
    product.right = product.right.with_dim(1);
  }
  Sizes sizes(call.tensor(0).sizes().begin(), call.tensor(0).sizes().end());
  sizes[last] = call.tensor(1).size(0);
  call.use(0, product.left);
  call.use(1, product.right);
  call.use(2, bias);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

/// The dimension, counted from the back, in which the distances of two sets of
/// points `[…, n, features]` and `[…, m, features]` are computed in parts.
struct Points {
  Placement left;
  Placement right;
  Placement result;
};

/// `dims` is that of the result. Sets of points may be broadcast in their batch
/// dimensions.
bool choose_points(
    const at::Tensor& x1,
    const at::Tensor& x2,
    const Placement& p1,
    const Placement& p2,
    int64_t dims,
    Points& out) {
  const auto cut_rows = [](const at::Tensor& x, const Placement& p) {
    return p.is_shard() && p.dim() == x.dim() - 2;
  };
  if (cut_rows(x1, p1)) {
    out = {p1, Replicate(), p1.with_dim(dims - 2)};
    return true;
  }
  if (cut_rows(x2, p2)) {
    out = {Replicate(), p2, p2.with_dim(dims - 1)};
    return true;
  }
  for (const auto* cut : {&x1, &x2}) {
    const auto& place = cut == &x1 ? p1 : p2;
    if (place.is_shard() && place.dim() < cut->dim() - 2 &&
        cut->size(place.dim()) != 1) {
      const auto result = place.with_dim(dims - (cut->dim() - place.dim()));
      out = {
          like_result(x1, result, dims), like_result(x2, result, dims), result};
      return true;
    }
  }
  return false;
}

/// The sizes of all distances.
Sizes distances(const at::Tensor& x1, const at::Tensor& x2) {
  auto sizes = at::infer_size(
      x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return Sizes(sizes.begin(), sizes.end());
}

bool cdist(Call& call) {
  if (!call.info().writes.empty() || call.tensor(0).dim() < 2 ||
      call.tensor(1).dim() < 2) {
    return false;
  }
  const at::Tensor x1 = call.tensor(0);
  const at::Tensor x2 = call.tensor(1);
  const auto sizes = distances(x1, x2);
  Points points;
  if (!choose_points(
          x1, x2, call.place(0), call.place(1), sizes.size(), points)) {
    return false;
  }
  if (call.size() == 4 &&
      (call.at(3).isNone() || call.integer(3) == 0)) {
    // Euclidean distances of many points are computed by a matrix product,
    // which rounds differently: the whole number of points decides.
    const bool many = x1.size(-2) > 25 || x2.size(-2) > 25;
    call.set(3, int64_t{many ? 1 : 2});
  }
  call.use(0, points.left);
  call.use(1, points.right);
  call.run();
  call.place_result(0, points.result, sizes);
  return true;
}

/// grad, x1, x2, p, distances: the gradient for x1.
bool cdist_backward(Call& call) {
  const at::Tensor x1 = call.tensor(1);
  const at::Tensor x2 = call.tensor(2);
  const at::Tensor grad = call.tensor(0);
  const int64_t dims = grad.dim();
  if (!call.info().writes.empty() || x1.dim() != dims || x2.dim() != dims ||
      dims < 2 || grad.sizes() != c10::IntArrayRef(distances(x1, x2)) ||
      grad.sizes().slice(0, dims - 2) != x1.sizes().slice(0, dims - 2) ||
      call.tensor(4).sizes() != grad.sizes()) {
    return false;
  }
  Points points;
  const auto of_grad = first_cut(call, {0, 4});
  if (of_grad.is_shard()) {
    const bool columns = of_grad.dim() == dims - 1;
    points = {
        columns ? Replicate() : of_grad,
        columns ? of_grad.with_dim(dims - 2)
                : of_grad.dim() == dims - 2 ? Replicate()
                                            : like_result(x2, of_grad, dims),
        of_grad};
  } else if (!choose_points(
                 x1, x2, call.place(1), call.place(2), dims, points)) {
    return false;
  }
  const bool columns = points.result.dim() == dims - 1;
  call.use(0, points.result);
  call.use(1, points.left);
  call.use(2, points.right);
  call.use(4, points.result);
  call.run();
  call.place_result(0, columns ? Partial() : points.left, x1.sizes());
  return true;
}

/// The product of three tensors that are expanded to the same dimensions, summed
/// over some of them (bilinear).
bool trilinear(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  const Sizes sum = call.integers(6);
  const Sizes expanded[3] = {
      call.integers(3), call.integers(4), call.integers(5)};
  const auto dims =
      static_cast<int64_t>(call.tensor(0).dim() + expanded[0].size());
  const auto contains = [](const Sizes& list, int64_t dim) {
    return std::find(list.begin(), list.end(), dim) != list.end();
  };
  // Of which dimension of tensor i a dimension of the product is made, -1 for
  // one that is expanded.
  const auto source = [&](int i, int64_t dim) -> int64_t {
    int64_t own = 0;
    for (int64_t d = 0; d < dim; ++d) {
      own += !contains(expanded[i], d);
    }
    return contains(expanded[i], dim) ? -1 : own;
  };
  Placement cut;
  Sizes sizes;
  int64_t n = 0;
  for (int64_t d = 0; d < dims; ++d) {
    int64_t size = 1;
    for (int i = 0; i < 3; ++i) {
      const int64_t own = source(i, d);
      if (own >= 0 && call.tensor(i).size(own) != 1) {
        size = call.tensor(i).size(own);
      }
      if (own >= 0 && !cut.is_shard() && call.place(i).is_shard(own) &&
          call.tensor(i).size(own) != 1) {
        cut = call.place(i).with_dim(d);
        n = call.tensor(i).size(own);
      }
    }
    if (!contains(sum, d)) {
      sizes.push_back(size);
    }
  }
  if (!cut.is_shard()) {
    return false;
  }
  Placement places[3];
  for (int i = 0; i < 3; ++i) {
    const int64_t own = source(i, cut.dim());
    if (own >= 0 && call.tensor(i).size(own) != n) {
      return false;
    }
    places[i] = own < 0 ? Replicate() : cut.with_dim(own);
  }
  int64_t before = 0;
  for (int64_t d = 0; d < cut.dim(); ++d) {
    before += contains(sum, d);
  }
  for (int i = 0; i < 3; ++i) {
    call.use(i, places[i]);
  }
  call.run();
  call.place_result(
      0,
      contains(sum, cut.dim()) ? Partial() : cut.with_dim(cut.dim() - before),
      sizes);
  return true;
}

} // namespace

bool takes_sparse(Rule rule) {
  return rule == mm || rule == addmm;
}

const Family& family() {
  static const char* const all = "rows, columns, summed dimension, P";
  static const char* const between =
      "nothing; of a square factor between the rows, also a sparse one: all-gather of the rows";
  static const char* const batched = "batch, rows, columns, summed dimension, P";
  static const char* const in_place = "self's own placement, which the factors get";
  static const char* const factors = "factors that are cut differently";
  static const Family rows{
      {"aten::mm", mm, all, between},
      {"aten::_int_mm", int_mm, "rows, more than 16 on each process", "nothing"},
      {"aten::addmm", addmm, all, between},
      {"aten::addmm_", addmm, in_place, factors},
      {"aten::_addmm_activation", addmm_activation, "rows, columns", "nothing"},
      {"aten::bmm", bmm, batched, "nothing"},
      {"aten::baddbmm", baddbmm, batched, "nothing"},
      {"aten::baddbmm_", baddbmm, in_place, factors},
      {"aten::addbmm", addbmm, batched, "nothing; the batch's sum is P"},
      {"aten::addbmm_", addbmm, in_place, factors},
      {"aten::mv", mv, "rows, summed dimension, P", "nothing"},
      {"aten::addmv", addmv, "rows, summed dimension, P", "nothing"},
      {"aten::addmv_", addmv, in_place, factors},
      {"aten::dot", dot, "S, P", "nothing; the result is P"},
      {"aten::vdot", dot, "S, P", "nothing; the result is P"},
      {"aten::addr", addr, "either vector, P", "nothing"},
      {"aten::addr_", addr, in_place, factors},
      {"aten::linear", linear, "rows, columns, summed dimension", "nothing"},
      {"aten::_cdist_forward", cdist, "batch, either set of points", "nothing"},
      {"aten::_euclidean_dist", cdist, "batch, either set of points", "nothing"},
      {"aten::_cdist_backward", cdist_backward, "batch, either set of points",
       "nothing; over the second set the result is P"},
      {"aten::_trilinear", trilinear, "any dimension", "nothing; a summed dimension gives P"},
  };
  return rows;
}

} // namespace accel::distributed::matrix_rules
