#include "distributed/rules/common.h"

// Layer and group norms, which work row by row, and norms of weights. Batch
// norms are in batch_norm.cpp.

namespace accel::distributed::normalization_rules {
namespace {

// ---- Layer norm, RMS norm, group norm.

/// Whether rows are cut and not what is normalised: the last `normalized`
/// dimensions.
bool cuts_rows(
    const at::Tensor& input,
    const Placement& place,
    size_t normalized) {
  return place.is_shard() &&
      place.dim() < input.dim() - static_cast<int64_t>(normalized);
}

/// native_layer_norm and _fused_rms_norm: input, normalized_shape, parameters.
/// Results: of the input's sizes, then statistics of each row.
bool layer_norm(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() ||
      !cuts_rows(call.tensor(0), place, call.integers(1).size())) {
    return false;
  }
  const int64_t n = call.tensor(0).size(place.dim());
  call.use_local(0);
  for (size_t i = 2; i < call.size(); ++i) {
    call.use_whole(i);
  }
  call.run();
  for (size_t k = 0; k < call.info().results; ++k) {
    call.place_result(k, place, n);
  }
  return true;
}

/// grad_out, input, normalized_shape, statistics of each row, parameters, mask.
/// Gradients: of the input in its place, of parameters parts of sums.
bool layer_norm_backward(Call& call) {
  const auto place = first_cut(call, {1, 0});
  if (!call.info().writes.empty() ||
      !cuts_rows(call.tensor(1), place, call.integers(2).size()) ||
      call.tensor(0).sizes() != call.tensor(1).sizes()) {
    return false;
  }
  const int64_t n = call.tensor(1).size(place.dim());
  const size_t parameters = call.index("weight");
  call.use(0, place);
  call.use(1, place);
  for (size_t i = 3; i < call.size(); ++i) {
    use_contiguous(call, i, i < parameters ? place : Replicate());
  }
  call.run();
  call.place_result(0, place, n);
  for (size_t k = 1; k < call.info().results; ++k) {
    call.place_result(k, Partial());
  }
  return true;
}

/// input, weight, bias, N, C, HxW, group, eps.
bool group_norm(Call& call) {
  const auto place = call.place(0);
  if (!call.info().writes.empty() || !place.is_shard(0) ||
      call.integer(3) != call.tensor(0).size(0)) {
    return false;
  }
  const int64_t n = call.integer(3);
  call.use_local(0);
  call.use_whole(1);
  call.use_whole(2);
  call.set(3, call.rows(n, place));
  call.run();
  for (size_t k = 0; k < 3; ++k) {
    call.place_result(k, place, n);
  }
  return true;
}

/// grad_out, input, mean, rstd, weight, N, C, HxW, group, mask.
bool group_norm_backward(Call& call) {
  const auto place = first_cut(call, {1, 0, 2, 3});
  if (!call.info().writes.empty() || !place.is_shard(0) ||
      call.integer(5) != call.tensor(1).size(0)) {
    return false;
  }
  const int64_t n = call.integer(5);
  for (size_t i = 0; i < 4; ++i) {
    use_contiguous(call, i, place);
  }
  call.use_whole(4);
  call.set(5, call.rows(n, place));
  call.run();
  call.place_result(0, place, n);
  call.place_result(1, Partial());
  call.place_result(2, Partial());
  return true;
}

// ---- Norms of weights.

/// self, p, dim, maxnorm: each slice of `dim` by its own norm.
bool renorm(Call& call) {
  const auto place = call.place(0);
  const at::Tensor self = call.tensor(0);
  const bool in_place = call.info().is_in_place;
  if (!(call.info().writes.empty() || in_place) || !place.is_shard() ||
      place.dim() != call.dim(2, self.dim())) {
    return false;
  }
  call.use_local(0);
  call.run();
  if (in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes());
  }
  return true;
}

/// v, g, dim: weight and norms, one for each slice of `dim`.
bool weight_norm(Call& call) {
  const auto place = first_cut(call, {0, 1});
  const at::Tensor v = call.tensor(0);
  if (!call.info().writes.empty() || !place.is_shard() ||
      place.dim() != call.dim(2, v.dim()) ||
      call.tensor(1).dim() != v.dim()) {
    return false;
  }
  const int64_t n = v.size(place.dim());
  use_contiguous(call, 0, place);
  use_contiguous(call, 1, place);
  call.run();
  call.place_result(0, place, n);
  call.place_result(1, place, n);
  return true;
}

/// grad_w, v, g, norms, dim.
bool weight_norm_backward(Call& call) {
  const auto place = first_cut(call, {1, 0, 2, 3});
  const at::Tensor v = call.tensor(1);
  if (!call.info().writes.empty() || !place.is_shard() ||
      place.dim() != call.dim(4, v.dim()) || call.tensor(2).dim() != v.dim() ||
      call.tensor(3).dim() != v.dim()) {
    return false;
  }
  const int64_t n = v.size(place.dim());
  for (size_t i = 0; i < 4; ++i) {
    use_contiguous(call, i, place);
  }
  call.run();
  call.place_result(0, place, n);
  call.place_result(1, place, n);
  return true;
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::native_layer_norm", layer_norm, "rows", "nothing"},
      {"aten::native_layer_norm_backward", layer_norm_backward, "rows",
       "nothing; gradients of parameters are P"},
      {"aten::_fused_rms_norm", layer_norm, "rows", "nothing"},
      {"aten::_fused_rms_norm_backward", layer_norm_backward, "rows",
       "nothing; gradients of parameters are P"},
      {"aten::native_group_norm", group_norm, "S(0)", "nothing"},
      {"aten::native_group_norm_backward", group_norm_backward, "S(0)",
       "nothing; gradients of parameters are P"},
      {"aten::renorm", renorm, "the dimension whose slices are normed", "nothing"},
      {"aten::renorm_", renorm, "the dimension whose slices are normed", "nothing"},
      {"aten::_weight_norm_interface", weight_norm,
       "the dimension whose slices are normed", "nothing"},
      {"aten::_weight_norm_interface_backward", weight_norm_backward,
       "the dimension whose slices are normed", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::normalization_rules
