#include "distributed/recompute.h"
#include "distributed/rules/common.h"

// Linear algebra on batches of matrices, cut in a batch dimension: each process
// does its matrices. One matrix is never cut up. Fourier transforms likewise.

namespace accel::distributed::linalg_rules {
namespace {

/// The dimensions of a batch of matrices.
c10::IntArrayRef batch_of(const at::Tensor& matrices) {
  return matrices.sizes().slice(0, std::max<int64_t>(matrices.dim() - 2, 0));
}

/// Whether asked to throw for a matrix that is singular: all processes should,
/// which is decided on whole tensors.
bool throws(const Call& call) {
  const int check = call.index("check_errors");
  return check >= 0 && call.boolean(check);
}

/// Results begin with the batch, except for empty ones that were not asked for.
bool run_batch(
    Call& call,
    std::initializer_list<size_t> arguments,
    const Placement& place,
    int64_t n) {
  for (const size_t i : arguments) {
    call.use(i, place);
  }
  const int64_t local_rows = call.rows(n, place);
  call.run();
  for (size_t k = 0; k < call.info().results; ++k) {
    if (!call.result(k).isTensor() || !call.local_result(k).defined()) {
      continue;
    }
    const auto& result = call.local_result(k);
    if (result.dim() > place.dim() && result.size(place.dim()) == local_rows) {
      call.place_result(k, place, n);
    }
  }
  return true;
}

/// Whether a place cuts a batch dimension of these matrices.
bool cuts_batch(const at::Tensor& matrices, const Placement& place) {
  return place.is_shard() && place.dim() < matrices.dim() - 2;
}

/// Argument 0 is a batch of matrices; no other tensors.
bool one(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || throws(call) ||
      !cuts_batch(call.tensor(0), place)) {
    return false;
  }
  return run_batch(call, {0}, place, call.tensor(0).size(place.dim()));
}

/// Arguments 0 and 1 are batches of matrices, of the same batch.
bool two(Call& call) {
  const auto place = first_cut(call, {0, 1});
  if (!call.info().writes.empty() || throws(call) ||
      !cuts_batch(call.tensor(0), place) ||
      call.tensor(0).dim() != call.tensor(1).dim() ||
      batch_of(call.tensor(0)) != batch_of(call.tensor(1))) {
    return false;
  }
  return run_batch(call, {0, 1}, place, call.tensor(0).size(place.dim()));
}

/// Argument 0 is a batch of matrices, argument 1 of vectors; the third, where
/// there is one, of matrices again.
bool matrices_vectors(Call& call) {
  const auto& matrices = call.tensor(0);
  const bool third = call.size() > 2 && call.at(2).isTensor();
  const auto place =
      third ? first_cut(call, {0, 1, 2}) : first_cut(call, {0, 1});
  if (!call.info().writes.empty() || !cuts_batch(matrices, place) ||
      call.tensor(1).dim() != matrices.dim() - 1 ||
      call.tensor(1).sizes().slice(0, matrices.dim() - 2) !=
          batch_of(matrices) ||
      (third &&
       (call.tensor(2).dim() != matrices.dim() ||
        batch_of(call.tensor(2)) != batch_of(matrices)))) {
    return false;
  }
  const int64_t n = matrices.size(place.dim());
  return third ? run_batch(call, {0, 1, 2}, place, n)
               : run_batch(call, {0, 1}, place, n);
}

/// Equations of a matrix that every process has, argument `matrix`, with many right
/// sides, argument `sides`, which are cut along `dim`: each is solved by itself.
bool right_sides(Call& call, size_t matrix, size_t sides, int64_t dim) {
  const at::Tensor& b = call.tensor(sides);
  const auto place = call.place(sides);
  // Where in memory a single right side lies, its part does not say.
  if (!call.info().writes.empty() || !place.is_shard(dim) ||
      call.place(matrix).is_shard() || call.place(matrix).is_sum() ||
      call.tensor(matrix).dim() != b.dim() ||
      batch_of(call.tensor(matrix)) != batch_of(b) ||
      has_single_rows(call.axis(), place, b.sizes())) {
    return false;
  }
  const int64_t n = b.size(dim);
  call.use_whole(matrix);
  call.use(sides, place);
  call.run();
  call.place_result(0, place, n);
  return true;
}

/// A and B of linear equations: B is a batch of matrices or of vectors.
bool solve(Call& call) {
  const auto& a = call.tensor(0);
  const auto& b = call.tensor(1);
  if (a.dim() == b.dim()) {
    const int left = call.index("left");
    const bool columns = left < 0 || call.boolean(left);
    return two(call) ||
        right_sides(call, 0, 1, columns ? b.dim() - 1 : b.dim() - 2);
  }
  const bool vectors = b.dim() == a.dim() - 1 &&
      b.sizes() == a.sizes().slice(0, a.dim() - 1);
  // Vectors come back as the columns of one matrix: where a single one lies its
  // part does not say.
  const auto place = first_cut(call, {0, 1});
  return vectors && !throws(call) &&
      !has_single_rows(call.axis(), place, a.sizes()) &&
      matrices_vectors(call);
}

/// Whether all processes have a matrix that linear equations can be solved with: no zero on
/// the diagonal, where 1 / 0 and -1 / 0 would add up to nothing that their sum / 0 is.
bool is_regular_triangle(const at::Tensor& matrix) {
  return part_of(matrix) == nullptr && matrix.is_cpu() &&
      matrix.diagonal(0, -2, -1).ne(0).all().item<bool>() &&
      at::isfinite(matrix).all().item<bool>();
}

/// A, B, upper, left, unitriangular: A X = B, or X A = B. A gradient B of which each
/// process has a part gives a part.
bool solve_triangular(Call& call) {
  const int64_t dims = call.tensor(1).dim();
  if (in_backward() && call.info().writes.empty() && call.place(1).is_sum() &&
      is_regular_triangle(call.tensor(0))) {
    call.use_whole(0);
    call.use_local(1);
    call.run();
    call.place_result(0, Partial());
    return true;
  }
  return two(call) ||
      right_sides(call, 0, 1, call.boolean(3) ? dims - 1 : dims - 2);
}

/// self, input2, …: right sides, and a factor.
bool cholesky_solve(Call& call) {
  return two(call) || right_sides(call, 1, 0, call.tensor(0).dim() - 1);
}

/// self, b, rcond, driver. Two of the drivers compute residuals only where all
/// matrices of the batch have full rank.
bool lstsq(Call& call) {
  if (!call.at(3).isNone() && call.at(3).toStringRef() != "gelsy" &&
      call.at(3).toStringRef() != "gels") {
    return false;
  }
  return two(call);
}

/// Matrices, and tolerances that are the same for all.
bool pinv(Call& call) {
  for (const size_t i : {1, 2}) {
    if (call.has(i) && (call.tensor(i).dim() != 0 || call.part(call.tensor(i)))) {
      return false;
    }
  }
  return one(call);
}

/// self, dim, …: Fourier transforms along some dimensions, which are linear.
bool fourier(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (!call.info().writes.empty() || !(place.is_shard() || place.is_sum())) {
    return false;
  }
  for (const int64_t dim : call.integers(1)) {
    if (place.is_shard(wrapped(dim, self.dim()))) {
      return false;
    }
  }
  // Where in memory the transforms put a single row, its part does not say.
  if (has_single_rows(call.axis(), place, self.sizes())) {
    return false;
  }
  call.use_local(0);
  call.run();
  if (place.is_shard()) {
    call.place_result(0, place, self.size(place.dim()));
  } else {
    call.place_result(0, place);
  }
  return true;
}

/// self, other, dim: element by element but for `dim`.
bool cross(Call& call) {
  const int64_t dims = call.tensor(0).dim();
  const int64_t dim = call.dim(2, dims);
  if (call.tensor(1).dim() != dims || call.place(0).is_shard(dim) ||
      call.place(1).is_shard(dim)) {
    return false;
  }
  return pointwise(call);
}

} // namespace

const Family& family() {
  static const char* const batch = "batch dimensions";
  static const char* const sides = "batch dimensions; right sides";
  static const char* const triangle = "batch dimensions; right sides; in backward, P";
  static const Family rows{
      {"aten::cholesky", one, batch, "nothing"},
      {"aten::linalg_cholesky_ex", one, batch, "nothing"},
      {"aten::cholesky_inverse", one, batch, "nothing"},
      {"aten::cholesky_solve", cholesky_solve, sides, "nothing"},
      {"aten::_cholesky_solve_helper", cholesky_solve, sides, "nothing"},
      {"aten::linalg_qr", one, batch, "nothing"},
      {"aten::geqrf", one, batch, "nothing"},
      {"aten::linalg_householder_product", matrices_vectors, batch, "nothing"},
      {"aten::ormqr", matrices_vectors, batch, "nothing"},
      {"aten::_linalg_svd", one, batch, "nothing"},
      {"aten::_linalg_eigh", one, batch, "nothing"},
      {"aten::linalg_eig", one, batch, "nothing"},
      {"aten::_linalg_eigvals", one, batch, "nothing"},
      {"aten::linalg_inv_ex", one, batch, "nothing"},
      {"aten::_linalg_det", one, batch, "nothing"},
      {"aten::_linalg_slogdet", one, batch, "nothing"},
      {"aten::linalg_matrix_exp", one, batch, "nothing"},
      {"aten::linalg_pinv.atol_rtol_tensor", pinv, batch, "nothing"},
      {"aten::linalg_lu", one, batch, "nothing"},
      {"aten::linalg_lu_factor_ex", one, batch, "nothing"},
      {"aten::lu_unpack", matrices_vectors, batch, "nothing"},
      {"aten::linalg_lu_solve", matrices_vectors, batch, "nothing"},
      {"aten::linalg_ldl_factor_ex", one, batch, "nothing"},
      {"aten::linalg_ldl_solve", matrices_vectors, batch, "nothing"},
      {"aten::_linalg_solve_ex", solve, sides, "nothing"},
      {"aten::triangular_solve", two, batch, "nothing"},
      {"aten::linalg_solve_triangular", solve_triangular, triangle, "nothing"},
      {"aten::linalg_lstsq", lstsq, batch, "nothing"},
      {"aten::_fft_r2c", fourier, "dimensions that are not transformed; P", "nothing"},
      {"aten::_fft_c2r", fourier, "dimensions that are not transformed; P", "nothing"},
      {"aten::_fft_c2c", fourier, "dimensions that are not transformed; P", "nothing"},
      {"aten::linalg_cross", cross, "other dimensions than that of the vectors", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::linalg_rules
