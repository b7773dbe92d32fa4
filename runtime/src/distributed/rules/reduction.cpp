#include "distributed/memory_order.h"
#include "distributed/rules/common.h"

#include <limits>

// Reductions: what is not reduced stays cut. Where the cut dimension is reduced,
// the result is a part of a sum (a maximum, a product), or, where no such part
// exists, the processes' results are stacked and reduced once more.

namespace accel::distributed::reduction_rules {
namespace {

/// Not `out=`, and dimensions are numbers.
bool is_plain_form(const Call& call) {
  return call.info().writes.empty() &&
      call.overload().find("name") == std::string::npos;
}

bool is_cut(const Call& call) {
  return call.place(0).is_shard() && is_plain_form(call);
}

/// Runs on the local tensor. True where the cut dimension is kept: results are
/// placed then.
bool run_kept(Call& call, const Placement& place, const Reduced& out) {
  call.use_local(0);
  call.run();
  const int64_t dim = out.dim_of[place.dim()];
  if (dim < 0) {
    return false;
  }
  // A reduction's result is a new tensor, however the argument lies in memory: for
  // those that cannot be asked on tensors without memory (`var`).
  const Sizes like = call.has_unordered() ? usual_strides(out.sizes) : Sizes();
  for (size_t k = 0; k < call.info().results; ++k) {
    call.place_result(k, place.with_dim(dim), out.sizes, like);
  }
  return true;
}

/// sum, nansum, mean, count_nonzero.
bool sum(Call& call) {
  const auto place = call.place(0);
  const bool of_sum =
      place.is_sum() && keeps_sum(call) &&
      (call.name() == "aten::sum" || call.name() == "aten::mean");
  if (!(place.is_shard() || of_sum) || !is_plain_form(call)) {
    return false;
  }
  const auto out = reduced(call);
  const int64_t n = place.is_shard() ? call.tensor(0).size(place.dim()) : 1;
  if (of_sum) {
    call.use_local(0);
    call.run();
    call.place_result(0, Partial(), out.sizes);
    return true;
  }
  if (run_kept(call, place, out)) {
    return true;
  }
  if (call.name() == "aten::mean") {
    const auto share = static_cast<double>(call.rows(n, place)) / n;
    call.result() = call.local_result().mul(share);
  }
  call.place_result(0, Partial(), out.sizes);
  return true;
}

/// One result whose parts `Op` puts together.
template <ReduceOp Op>
bool extreme(Call& call) {
  const auto place = call.place(0);
  if (!is_plain_form(call)) {
    return false;
  }
  const auto out = reduced(call);
  const bool whole_sized = Op != ReduceOp::kProduct && place == Partial(Op);
  if (!place.is_shard() && !whole_sized) {
    return false;
  }
  if (whole_sized) {
    call.use_local(0);
    call.run();
    call.place_result(0, place, out.sizes);
    return true;
  }
  if (!run_kept(call, place, out)) {
    call.place_result(0, Partial(Op), out.sizes);
  }
  return true;
}

/// any and all: a list of no dimensions leaves the tensor as it is.
template <ReduceOp Op>
bool logical(Call& call) {
  const int dim = call.info().dim;
  if (!is_cut(call) ||
      (dim >= 0 && call.at(dim).isIntList() && call.integers(dim).empty())) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  if (!run_kept(call, place, out)) {
    call.place_result(0, Partial(Op), out.sizes);
  }
  return true;
}

/// The least and the greatest.
bool aminmax(Call& call) {
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  if (!run_kept(call, place, out)) {
    call.place_result(0, Partial(ReduceOp::kMin), out.sizes);
    call.place_result(1, Partial(ReduceOp::kMax), out.sizes);
  }
  return true;
}

/// Of the processes' extreme values the extreme one, and its index: the least
/// where several have it, and that of the first NaN where there is one.
template <bool Max>
std::pair<at::Tensor, at::Tensor> first_extreme(
    const Call& call,
    const at::Tensor& value,
    const at::Tensor& index) {
  const auto values = stacked(call, value);
  const auto indices = stacked(call, index);
  const auto best = Max ? values.amax(0) : values.amin(0);
  auto same = values.eq(best);
  if (values.is_floating_point()) {
    same = same.logical_or(values.isnan());
  }
  const auto last = std::numeric_limits<int64_t>::max();
  return {best, indices.masked_fill(same.logical_not(), last).amin(0)};
}

/// max and min: with a dimension values and indices.
template <bool Max>
bool max(Call& call) {
  if (call.info().results == 1) {
    return call.info().arguments == 1
        ? extreme<Max ? ReduceOp::kMax : ReduceOp::kMin>(call)
        : pointwise(call); // of two tensors
  }
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  if (place.in_blocks() && out.dim_of[place.dim()] < 0) {
    return false; // indices tell where the rows are
  }
  const int64_t n = call.tensor(0).size(place.dim());
  if (!run_kept(call, place, out)) {
    const int64_t begin = call.axis().range(n, place.cut()).first;
    const auto [value, index] = first_extreme<Max>(
        call, call.local_result(0), call.local_result(1).add(begin));
    call.result(0) = value;
    call.result(1) = index;
  }
  return true;
}

/// The index in the whole tensor, flattened, of one in the flattened part.
at::Tensor flat_index(
    const Call& call,
    const at::Tensor& index,
    c10::IntArrayRef sizes,
    const Placement& place) {
  const int64_t d = place.dim();
  int64_t inner = 1;
  for (size_t k = d + 1; k < sizes.size(); ++k) {
    inner *= sizes[k];
  }
  const auto [begin, end] = call.axis().range(sizes[d], place.cut());
  const int64_t block = (end - begin) * inner;
  const auto outer = index.div(block, "floor");
  return outer * (sizes[d] * inner) + (index - outer * block) + begin * inner;
}

template <bool Max>
bool argmax(Call& call) {
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  const at::Tensor self = call.tensor(0);
  const at::Tensor local = call.local(0);
  const bool flat = call.at(1).isNone();
  const int64_t dim = flat ? 0 : call.dim(1, self.dim());
  const bool keepdim = call.boolean(2);
  if (place.in_blocks() && out.dim_of[place.dim()] < 0) {
    return false; // indices tell where the rows are
  }
  if (run_kept(call, place, out)) {
    return true;
  }
  const auto index = call.local_result();
  at::Tensor value;
  at::Tensor whole_index;
  if (flat) {
    value = local.reshape({-1}).take(index);
    whole_index = flat_index(call, index, self.sizes(), place);
  } else {
    value = local.gather(dim, keepdim ? index : index.unsqueeze(dim));
    value = keepdim ? value : value.squeeze(dim);
    whole_index =
        index.add(call.axis().range(self.size(dim), place.cut()).first);
  }
  call.result() = first_extreme<Max>(call, value, whole_index).second;
  return true;
}

/// Reductions whose result cannot be put together: only beside the cut.
bool beside(Call& call) {
  if (!is_cut(call) || call.info().dim < 0) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  return out.dim_of[place.dim()] >= 0 && run_kept(call, place, out);
}

/// The norm of the processes' norms is the norm of all.
at::Tensor norm_of_norms(
    const Call& call,
    const at::Tensor& local,
    const at::Scalar& p) {
  const auto norms = stacked(call, local);
  return p.toDouble() == 0 ? norms.sum(0)
                           : at::linalg_vector_norm(norms, p, at::IntArrayRef{0});
}

/// linalg_vector_norm and norm: argument 1 is the order.
bool norm(Call& call) {
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  const at::Scalar p = call.at(1).isNone() ? at::Scalar(2) : call.at(1).toScalar();
  if (!run_kept(call, place, out)) {
    call.result() = norm_of_norms(call, call.local_result(), p);
  }
  return true;
}

bool dist(Call& call) {
  const auto place = first_cut(call, {0, 1});
  if (!call.info().writes.empty() || !place.is_shard() ||
      call.tensor(0).sizes() != call.tensor(1).sizes()) {
    return false;
  }
  const auto p = call.at(2).toScalar();
  call.use(0, place);
  call.use(1, place);
  call.run();
  call.result() = norm_of_norms(call, call.local_result(), p);
  return true;
}

bool logsumexp(Call& call) {
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  if (!run_kept(call, place, out)) {
    call.result() = stacked(call, call.local_result()).logsumexp(at::IntArrayRef{0});
  }
  return true;
}

/// The mean of all rows, as a kernel that goes through them in order has it: one
/// that meets an infinite value and then a finite one has not a number.
at::Tensor mean_in_order(
    const Call& call,
    const at::Tensor& means,
    int64_t n,
    const Placement& place) {
  auto mean = means[0];
  for (int64_t rank = 1; rank < call.axis().size(); ++rank) {
    const auto [begin, end] = call.axis().range(n, place.cut(), rank);
    const auto share = static_cast<double>(end - begin) / end;
    mean = mean + (means[rank] - mean) * share;
  }
  return mean;
}

/// var, std, var_mean, std_mean: moments of all rows out of each process's.
bool var(Call& call) {
  if (!is_cut(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto out = reduced(call);
  const at::Tensor self = call.tensor(0);
  const int64_t dim = out.dim_of[place.dim()];
  if (dim >= 0) {
    return run_kept(call, place, out);
  }
  if (!self.is_floating_point() && !self.is_complex()) {
    return false; // an error, which the whole tensors give
  }
  const auto local = call.local(0).to(wide(self.scalar_type()));
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (out.dim_of[d] < 0) {
      dims.push_back(d);
      count *= self.size(d);
    }
  }
  const auto& correction = call.at(call.index("correction"));
  const double free = std::max(
      0., static_cast<double>(count) -
          (correction.isNone() ? 1. : correction.toScalar().toDouble()));
  const bool keepdim = call.boolean(call.info().keepdim);
  const int64_t n = self.size(place.dim());
  const auto [local_var, local_mean] =
      at::var_mean(local, dims, /*correction=*/0, keepdim);
  const auto all =
      combined_moments(call, local_mean, local_var, n, count / n, place);
  auto result = all.squares / free;
  if (call.name().find("std") != std::string::npos) {
    result = result.sqrt();
  }
  result = result.to(c10::toRealValueType(self.scalar_type()));
  if (call.info().results == 1) {
    call.finish({result});
  } else {
    const auto mean = mean_in_order(call, all.means, n, place);
    call.finish({result, mean.to(self.scalar_type())});
  }
  return true;
}

/// The diagonal goes through every part, at another column.
bool trace(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || place.is_replicate() ||
      (place.is_partial() && !place.is_sum())) {
    return false;
  }
  int64_t offset = 0;
  if (place.is_shard()) {
    const int64_t n = call.tensor(0).size(place.dim());
    offset = call.axis().range(n, place.cut()).first;
  }
  const auto local = call.local(0);
  call.finish({local.diagonal(place.is_shard(1) ? -offset : offset).sum()});
  call.place_result(0, Partial(), c10::IntArrayRef{});
  return true;
}

/// equal and allclose: true where it is on every process.
bool all_equal(Call& call) {
  const auto place = first_cut(call, {0, 1});
  if (!place.is_shard() || call.tensor(0).sizes() != call.tensor(1).sizes()) {
    return false;
  }
  call.use(0, place);
  call.use(1, place);
  call.run();
  const auto differ = at::tensor(call.result().toBool() ? 0 : 1, at::kLong);
  call.result() = reduce(
                      call.axis(), differ, ReduceOp::kSum, call.name().c_str())
                      .item<int64_t>() == 0;
  return true;
}

/// As LibTorch does, a tensor is not compared with itself, nor with one of other sizes:
/// attention asks so whether it attends to its own input.
bool equal(Call& call) {
  const auto& one = call.tensor(0);
  const auto& other = call.tensor(1);
  const bool alike =
      one.scalar_type() == other.scalar_type() && one.device() == other.device();
  if (one.is_same(other) || (alike && one.sizes() != other.sizes())) {
    call.finish({one.is_same(other)});
    return true;
  }
  return all_equal(call);
}

} // namespace

const Family& family() {
  static const char* const beside_text = "dimensions that are not reduced";
  static const char* const to_sum =
      "nothing; over the cut dimension the result is P";
  static const char* const to_max =
      "nothing; over the cut dimension the result is P(max) or P(min)";
  static const char* const one_each =
      "over the cut dimension one result of each process";
  static const Family rows{
      {"aten::sum", sum, "any", to_sum},
      {"aten::nansum", sum, "S", to_sum},
      {"aten::mean", sum, "any", to_sum},
      {"aten::count_nonzero", sum, "S", to_sum},
      {"aten::prod", extreme<ReduceOp::kProduct>, "S",
       "nothing; over the cut dimension the result is P(product)"},
      {"aten::amax", extreme<ReduceOp::kMax>, "S, P(max)", to_max},
      {"aten::amin", extreme<ReduceOp::kMin>, "S, P(min)", to_max},
      {"aten::any", logical<ReduceOp::kMax>, "S", to_max},
      {"aten::all", logical<ReduceOp::kMin>, "S", to_max},
      {"aten::_is_any_true", logical<ReduceOp::kMax>, "S", to_max},
      {"aten::_is_all_true", logical<ReduceOp::kMin>, "S", to_max},
      {"aten::aminmax", aminmax, "S", to_max},
      {"aten::_aminmax", aminmax, "S", to_max},
      {"aten::max", max<true>, "S, P(max)", "with a dimension: values and indices of each process; else nothing"},
      {"aten::min", max<false>, "S, P(min)", "with a dimension: values and indices of each process; else nothing"},
      {"aten::argmax", argmax<true>, "S", one_each},
      {"aten::argmin", argmax<false>, "S", one_each},
      {"aten::median", beside, beside_text, "nothing"},
      {"aten::nanmedian", beside, beside_text, "nothing"},
      {"aten::mode", beside, beside_text, "nothing"},
      {"aten::linalg_vector_norm", norm, "S", one_each},
      {"aten::norm", norm, "S", one_each},
      {"aten::dist", dist, "S", "one number of each process"},
      {"aten::logsumexp", logsumexp, "S", one_each},
      {"aten::var.correction", var, "S", "over the cut dimension mean and variance of each process"},
      {"aten::std.correction", var, "S", "as var"},
      {"aten::var_mean.correction", var, "S", "as var"},
      {"aten::std_mean.correction", var, "S", "as var"},
      {"aten::trace", trace, "rows, columns, P", "nothing; the result is P"},
      {"aten::equal", equal, "S", "one number; nothing for a tensor and itself, nor for other sizes"},
      {"aten::allclose", all_equal, "S", "one number"},
  };
  return rows;
}

} // namespace accel::distributed::reduction_rules
