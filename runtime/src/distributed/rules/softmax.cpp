#include "distributed/rules/common.h"

#include <limits>

// Softmax along a dimension that is not cut works row by row. Along the cut
// dimension the rows' normalisation is put together out of the processes'.

namespace accel::distributed::softmax_rules {
namespace {

bool is_log(const Call& call) {
  return call.name().find("log") != std::string::npos;
}

/// The logarithm of the sum of exponentials along a cut dimension. Not a number
/// where it is infinite, as kernels, which subtract the greatest value from
/// itself, have it. Collective.
at::Tensor whole_logsumexp(const Call& call, const at::Tensor& local, int64_t dim) {
  const auto sum = stacked(call, local.logsumexp(dim, /*keepdim=*/true))
                       .logsumexp(at::IntArrayRef{0});
  return sum.masked_fill(sum.isinf(), std::numeric_limits<double>::quiet_NaN());
}

/// self, dim, half_to_float.
bool softmax(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || !place.is_shard()) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const int64_t dim = call.dim(1, self.dim());
  if (!place.is_shard(dim)) {
    call.use_local(0);
    call.run();
    call.place_result(0, place, self.sizes());
    return true;
  }
  const bool widen = call.boolean(2);
  const auto local = call.local(0).to(wide(self.scalar_type()));
  const auto centred = local - whole_logsumexp(call, local, dim);
  const auto result = is_log(call) ? centred : centred.exp();
  call.finish({widen ? result : result.to(self.scalar_type())});
  call.place_result(0, place, self.sizes());
  return true;
}

/// _safe_softmax: rows of nothing but -inf are zeros; only beside the cut.
bool safe_softmax(Call& call) {
  const auto place = call.place(0);
  const at::Tensor self = call.tensor(0);
  if (!call.info().writes.empty() || !place.is_shard() ||
      place.dim() == call.dim(1, self.dim())) {
    return false;
  }
  call.use_local(0);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

/// grad_output, output, dim, input_dtype. Linear in the gradient, of which each process
/// may have a part: of weights that all have, as a mixture's.
bool softmax_backward(Call& call) {
  const auto place = first_cut(call, {0, 1});
  if (call.info().writes.empty() && call.place(0).is_sum() &&
      call.place(1).is_replicate() &&
      call.at(3).toScalarType() == call.tensor(0).scalar_type() &&
      call.tensor(0).sizes() == call.tensor(1).sizes()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(0, Partial());
    return true;
  }
  if (!call.info().writes.empty() || !place.is_shard() ||
      call.tensor(0).sizes() != call.tensor(1).sizes()) {
    return false;
  }
  const Sizes sizes(call.tensor(0).sizes().begin(), call.tensor(0).sizes().end());
  const int64_t dim = call.dim(2, sizes.size());
  const auto type = call.at(3).toScalarType();
  call.use(0, place);
  call.use(1, place);
  if (!place.is_shard(dim)) {
    call.run();
  } else {
    const auto grad = call.tensor(0).to(wide(call.tensor(0).scalar_type()));
    const auto output = call.tensor(1).to(grad.scalar_type());
    const auto weighted = is_log(call) ? grad : grad * output;
    const auto total = summed(call, weighted.sum(dim, /*keepdim=*/true));
    const auto result =
        is_log(call) ? grad - output.exp() * total : weighted - output * total;
    call.finish({result.to(type)});
  }
  call.place_result(0, place, sizes);
  return true;
}

/// self or gradient and output, and a mask of the same sizes.
bool masked(Call& call, size_t mask) {
  const auto place =
      mask == 1 ? first_cut(call, {0, 1}) : first_cut(call, {0, 1, 2});
  const at::Tensor self = call.tensor(0);
  const int of_dim = call.info().dim;
  const int64_t dim =
      call.at(of_dim).isNone() ? self.dim() - 1 : call.dim(of_dim, self.dim());
  if (!call.info().writes.empty() || !place.is_shard() || place.is_shard(dim) ||
      call.tensor(mask).sizes() != self.sizes() ||
      call.tensor(mask - 1).sizes() != self.sizes()) {
    return false;
  }
  if (mask == 1 && !call.at(3).isNone() && call.integer(3) != 2) {
    return false; // a mask of attention scores, whose sizes say what it masks
  }
  for (size_t i = 0; i <= mask; ++i) {
    use_contiguous(call, i, place);
  }
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

bool masked_softmax(Call& call) {
  return masked(call, 1);
}

bool masked_softmax_backward(Call& call) {
  return masked(call, 2);
}

} // namespace

const Family& family() {
  static const char* const one_each =
      "along the cut dimension one sum for each row and process";
  static const Family rows{
      {"aten::_softmax", softmax, "S", one_each},
      {"aten::_log_softmax", softmax, "S", one_each},
      {"aten::_softmax_backward_data", softmax_backward, "S; P of what all have", one_each},
      {"aten::_log_softmax_backward_data", softmax_backward, "S; P of what all have", one_each},
      {"aten::_safe_softmax", safe_softmax, "other dimensions", "nothing"},
      {"aten::_masked_softmax", masked_softmax,
       "other dimensions, a mask of the same sizes", "nothing"},
      {"aten::_masked_softmax_backward", masked_softmax_backward,
       "other dimensions, a mask of the same sizes", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::softmax_rules
