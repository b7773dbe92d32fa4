#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

// Random numbers follow one device's stream. The generators of all processes
// are in the same state. Where a part of a tensor needs numbers, LibTorch's own
// kernel draws those of the whole tensor, laid out in memory as one device
// would lay it out (kernels draw in that order), and this process's rows are
// kept: one device's numbers, and generators that stay equal. What is
// replicated is drawn by all processes alike, without a rule.
//
// Where as many numbers are drawn whatever the inputs' values are, the rows of
// other processes are ones (an ordinary probability, weight or deviation).
// Where values decide how many are drawn, the inputs are gathered first.

namespace accel::distributed::random_rules {
namespace {

/// A tensor of the whole's sizes and layout with nothing in it.
at::Tensor blank(const Call& call, const at::Tensor& part) {
  return at::empty_strided(
      part.sizes(), part.strides(),
      call.local(part).options());
}

/// The same with this process's rows in it and ones for the others. An expanded
/// tensor, whose elements share memory, has the layout that a result would have
/// that is made like it.
at::Tensor padded(
    Call& call,
    const at::Tensor& tensor,
    const Placement& place) {
  auto whole = at::empty_strided(
      tensor.sizes(),
      at::has_internal_overlap(tensor) == at::MemOverlap::No
          ? tensor.strides().vec()
          : at::infer_dense_strides(tensor.sizes(), tensor.strides()),
      call.local(tensor).options());
  whole.fill_(1);
  set_own_rows(call.axis(), whole, place, call.local_as(tensor, place));
  return whole;
}

/// The results are whole ones: this process's rows are left.
void keep_rows(Call& call, const Placement& place) {
  for (size_t k = 0; k < call.info().results; ++k) {
    const at::Tensor whole = call.local_result(k);
    call.result(k) = own_rows(call.axis(), whole, place).clone();
    call.place_result(k, place, whole.sizes(), whole.strides());
  }
}

/// normal_, uniform_ and others that fill a tensor whatever is in it.
bool draw_in_place(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (!place.is_shard()) {
    return false;
  }
  auto local = call.local(0);
  call.set(0, blank(call, self));
  call.run();
  local.copy_(own_rows(call.axis(), call.local_result(), place));
  call.return_self(self);
  return true;
}

/// bernoulli_ by a tensor of probabilities.
bool bernoulli_by_tensor(Call& call) {
  const at::Tensor self = call.tensor(0);
  const at::Tensor p = call.tensor(1);
  const auto place = call.place(0);
  if (!place.is_shard() || p.dim() > self.dim()) {
    return false;
  }
  const int64_t dim = place.dim() - (self.dim() - p.dim());
  const auto of_p =
      dim < 0 || p.size(dim) == 1 ? Replicate() : place.with_dim(dim);
  auto local = call.local(0);
  auto whole = blank(call, self);
  auto whole_p = at::ones(self.sizes(), p.options());
  // Probabilities are broadcast to the rows.
  auto local_p = call.local_as(p, of_p).expand(local.sizes());
  set_own_rows(call.axis(), whole_p, place, local_p);
  call.set(0, whole);
  call.set(1, whole_p);
  call.run();
  local.copy_(own_rows(call.axis(), whole, place));
  call.return_self(self);
  return true;
}

/// rand_like and others that read a tensor for its sizes only.
bool draw_like(Call& call) {
  if (has_out(call) || call.place(0).is_replicate()) {
    return false;
  }
  const auto place = call.place(0);
  if (call.size() > 1) {
    call.use_whole(1); // randint_like by a tensor
  }
  if (place.is_partial()) {
    call.use_local(0);
    call.run(); // plain, the same on all processes
    return true;
  }
  call.set(0, blank(call, call.tensor(0)));
  call.run();
  keep_rows(call, place);
  return true;
}

/// The first of these arguments that is cut, if all tensors among them have its
/// sizes.
std::optional<Placement> common_cut(
    const Call& call,
    std::initializer_list<size_t> arguments) {
  std::optional<Placement> cut;
  const at::Tensor* first = nullptr;
  for (const auto i : arguments) {
    if (!call.has(i)) {
      continue;
    }
    const auto& tensor = call.tensor(i);
    if (first != nullptr && tensor.sizes() != first->sizes()) {
      return {};
    }
    first = &tensor;
    if (!cut && call.place(i).is_shard()) {
      cut = call.place(i);
    }
  }
  return cut;
}

/// bernoulli, normal of tensors, dropout: a number for each element.
bool draw_each(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const auto cut = common_cut(call, {0, 1});
  if (!cut) {
    return false;
  }
  for (const size_t i : {0, 1}) {
    if (call.has(i)) {
      call.set(i, padded(call, call.tensor(i), *cut));
    }
  }
  call.run();
  keep_rows(call, *cut);
  return true;
}

/// multinomial: as many numbers for each row.
bool multinomial(Call& call) {
  const auto place = call.place(0);
  if (has_out(call) || !place.is_shard(0) || call.tensor(0).dim() != 2) {
    return false;
  }
  call.set(0, padded(call, call.tensor(0), place));
  call.run();
  keep_rows(call, place);
  return true;
}

/// poisson, binomial and others: the values decide how many numbers are drawn.
bool draw_by_values(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const auto cut = common_cut(call, {0, 1});
  if (!cut) {
    return false;
  }
  call.use_whole(0);
  if (call.has(1)) {
    call.use_whole(1);
  }
  call.run();
  keep_rows(call, *cut);
  return true;
}

/// rrelu_with_noise in its forms: draws for negative elements only.
bool rrelu(Call& call) {
  const at::Tensor self = call.tensor(0);
  const at::Tensor noise = call.tensor(1);
  const auto place = call.place(0);
  if (!call.overload().empty() || !place.is_shard() || call.place(1) != place ||
      noise.sizes() != self.sizes()) {
    return false;
  }
  auto local = call.local(0);
  auto local_noise = call.local(1);
  if (!call.boolean(4)) {
    call.use_local(0);
    call.use_local(1);
    call.run();
  } else {
    // LibTorch's kernel writes the noise in the order of its memory.
    auto whole_noise = blank(call, noise);
    call.use_whole(0);
    call.set(1, whole_noise);
    call.run();
    local_noise.copy_(own_rows(call.axis(), whole_noise, place));
    if (call.info().is_in_place) {
      local.copy_(own_rows(call.axis(), call.local_result(), place));
    } else {
      keep_rows(call, place);
      return true;
    }
  }
  if (call.info().is_in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes());
  }
  return true;
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const all_rows = "nothing; the numbers of all rows are drawn";
  static const char* const gathers =
      "all-gather of the input, whose values say how many numbers are drawn";
  static const Family rows{
      {"aten::normal_", draw_in_place, "S(any)", all_rows},
      {"aten::uniform_", draw_in_place, "S(any)", all_rows},
      {"aten::random_", draw_in_place, "S(any)", all_rows},
      {"aten::exponential_", draw_in_place, "S(any)", all_rows},
      {"aten::cauchy_", draw_in_place, "S(any)", all_rows},
      {"aten::log_normal_", draw_in_place, "S(any)", all_rows},
      {"aten::geometric_", draw_in_place, "S(any)", all_rows},
      {"aten::bernoulli_.float", draw_in_place, "S(any)", all_rows},
      {"aten::bernoulli_.Tensor", bernoulli_by_tensor, "S(any)", all_rows},
      {"aten::normal_functional", draw_like, "any", all_rows},
      {"aten::uniform", draw_like, "any", all_rows},
      {"aten::random", draw_like, "any", all_rows},
      {"aten::exponential", draw_like, "any", all_rows},
      {"aten::cauchy", draw_like, "any", all_rows},
      {"aten::log_normal", draw_like, "any", all_rows},
      {"aten::geometric", draw_like, "any", all_rows},
      {"aten::rand_like", draw_like, "any", all_rows},
      {"aten::randn_like", draw_like, "any", all_rows},
      {"aten::randint_like", draw_like, "any", all_rows},
      {"aten::bernoulli", draw_each, "S(any)", all_rows},
      {"aten::normal.Tensor_float", draw_each, "S(any)", all_rows},
      {"aten::normal.float_Tensor", draw_each, "S(any)", all_rows},
      {"aten::normal.Tensor_Tensor", draw_each, "S(any) of equal sizes", all_rows},
      {"aten::native_dropout", draw_each, "S(any)", all_rows},
      {"aten::_fused_dropout", draw_each, "S(any)", all_rows},
      {"aten::native_dropout_backward", pointwise, "any", none},
      {"aten::_masked_scale", pointwise, "any", none},
      {"aten::multinomial", multinomial, "S(0) of a matrix", all_rows},
      {"aten::poisson", draw_by_values, "S(any)", gathers},
      {"aten::binomial", draw_by_values, "S(any) of equal sizes", gathers},
      {"aten::_standard_gamma", draw_by_values, "S(any)", gathers},
      {"aten::_standard_gamma_grad", pointwise, "any", none},
      {"aten::_sample_dirichlet", draw_by_values, "S(any)", gathers},
      {"aten::_dirichlet_grad", pointwise, "any", none},
      {"aten::rrelu_with_noise", rrelu, "S(any)", gathers},
      {"aten::rrelu_with_noise_", rrelu, "S(any)", gathers},
      {"aten::rrelu_with_noise_backward", pointwise, "any", none},
  };
  return rows;
}

} // namespace accel::distributed::random_rules
