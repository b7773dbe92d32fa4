#include "distributed/rules/batch_norm.h"

#include <algorithm>
#include <initializer_list>

// The pieces of which torch's synchronised batch norm is made.

namespace accel::distributed::sync_batch_norm_rules {
namespace {

using batch_norm_rules::channel_moments;

/// input, eps: mean and inverse deviation.
bool batch_norm_stats(Call& call) {
  const auto place = call.place(0);
  const at::Tensor input = call.tensor(0);
  if (!call.info().writes.empty() || !place.is_shard() || place.is_shard(1) ||
      input.dim() < 2 || input.numel() == 0) {
    return false;
  }
  const auto eps = call.at(1).toDouble();
  const auto all = channel_moments(call, call.local(0), input.sizes(), place);
  const auto count = static_cast<double>(input.numel() / input.size(1));
  const auto type = wide(input.scalar_type());
  call.finish(
      {all.mean.to(type), (all.squares / count).add(eps).rsqrt().to(type)});
  return true;
}

/// input, running statistics, momentum: mean and variance.
bool batch_norm_update_stats(Call& call) {
  const auto place = call.place(0);
  const at::Tensor input = call.tensor(0);
  if (is_out_form(call) || !place.is_shard() || place.is_shard(1) ||
      input.dim() < 2 || input.numel() == 0 || call.has(1) || call.has(2) ||
      input.scalar_type() != wide(input.scalar_type())) {
    return false;
  }
  const auto all = channel_moments(call, call.local(0), input.sizes(), place);
  const auto count = static_cast<double>(input.numel() / input.size(1));
  const auto type = input.scalar_type();
  call.finish({all.mean.to(type), (all.squares / count).to(type)});
  return true;
}

/// Element by element; `tensors` are cut like the input, all others are whole.
bool elementwise(Call& call, std::initializer_list<size_t> tensors) {
  const auto place = first_cut(call, tensors);
  const at::Tensor input = call.tensor(*tensors.begin());
  if (!call.info().writes.empty() || !place.is_shard() || place.is_shard(1)) {
    return false;
  }
  for (const auto i : call.info().tensors) {
    const bool like_input =
        std::find(tensors.begin(), tensors.end(), i) != tensors.end();
    call.use(i, like_input ? place : Replicate());
  }
  call.run();
  return true;
}

bool batch_norm_elemt(Call& call) {
  const auto place = call.place(0);
  const Sizes sizes(call.tensor(0).sizes().begin(), call.tensor(0).sizes().end());
  if (!elementwise(call, {0})) {
    return false;
  }
  call.place_result(0, place, sizes);
  return true;
}

bool batch_norm_backward_elemt(Call& call) {
  const auto place = first_cut(call, {0, 1});
  const Sizes sizes(call.tensor(0).sizes().begin(), call.tensor(0).sizes().end());
  if (!elementwise(call, {0, 1})) {
    return false;
  }
  call.place_result(0, place, sizes);
  return true;
}

} // namespace

const Family& family() {
  static const char* const by_channels =
      "other dimensions than the channels'";
  static const Family rows{
      {"aten::batch_norm_stats", batch_norm_stats, by_channels,
       "mean and variance of each process's rows"},
      {"aten::batch_norm_update_stats", batch_norm_update_stats,
       "other dimensions than the channels', without running statistics",
       "mean and variance of each process's rows"},
      {"aten::batch_norm_elemt", batch_norm_elemt, by_channels, "nothing"},
      {"aten::batch_norm_backward_elemt", batch_norm_backward_elemt, by_channels, "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::sync_batch_norm_rules
