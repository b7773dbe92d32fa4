#include "distributed/rules/batch_norm.h"

#include <array>

// Backward of batch norms, out of the statistics of the whole batch.

namespace accel::distributed::batch_norm_backward_rules {
namespace {

using batch_norm_rules::all_but_channels;
using batch_norm_rules::of_channel_cut;
using batch_norm_rules::of_channels;

/// Where the arguments are; statistics are those of the whole batch.
struct BatchNormBackward {
  int grad = 0;
  int input = 1;
  int weight = 2;
  int running_mean = 3;
  int running_var = 4;
  int mean = 5;
  int invstd = 6;
  bool training = true;
  std::array<bool, 3> mask{true, true, true};
  double eps = 0;
};

/// Out of whole statistics, by formula. Collective where rows are cut and the
/// gradient of the input is asked for.
void finish_backward(
    Call& call,
    const BatchNormBackward& form,
    const Placement& place) {
  const at::Tensor input = call.tensor(form.input);
  const int64_t count = input.numel() / input.size(1);
  const auto of_channel = of_channel_cut(place);
  const auto values = [&](int i) {
    return call.has(i) ? call.local_as(call.tensor(i), of_channel) : at::Tensor();
  };
  const auto weight = values(form.weight);
  const auto local = call.local_as(input, place);
  const auto local_grad = call.local_as(call.tensor(form.grad), place);
  const auto mean = values(form.mean);
  const auto invstd = values(form.invstd);
  const auto type = wide(input.scalar_type());
  const auto grad = local_grad.to(type);
  const auto away = local.to(type) - of_channels(mean.to(type), local);
  const auto dims = all_but_channels(local);
  auto sums = at::stack({grad.sum(dims), (grad * away).sum(dims)});
  const bool rows = place.is_shard() && !place.is_shard(1);
  if (rows && form.mask[0]) {
    sums = summed(call, sums);
  }
  const auto scale = invstd.to(type);
  at::Tensor for_input;
  if (form.mask[0]) {
    const auto slope = sums[1] * scale * scale / static_cast<double>(count);
    const auto level = sums[0] / static_cast<double>(count);
    const auto factor = weight.defined() ? scale * weight.to(type) : scale;
    for_input = ((grad - of_channels(level, local) -
                  away * of_channels(slope, local)) *
                 of_channels(factor, local))
                    .to(input.scalar_type());
  }
  const auto of_parameter = [&](const at::Tensor& sum) {
    return sum.to((weight.defined() ? weight : mean).scalar_type());
  };
  const at::Tensor for_weight =
      form.mask[1] ? of_parameter(sums[1] * scale) : at::Tensor();
  const at::Tensor for_bias = form.mask[2] ? of_parameter(sums[0]) : at::Tensor();
  const Sizes sizes(input.sizes().begin(), input.sizes().end());
  call.finish({for_input, for_weight, for_bias});
  call.place_result(0, place, sizes);
  const auto of_sums = rows && !form.mask[0] ? Partial() : of_channel;
  call.place_result(1, of_sums, Sizes{sizes[1]});
  call.place_result(2, of_sums, Sizes{sizes[1]});
}

/// Each process does its channels, or in evaluation its rows, by the operator.
void run_backward(
    Call& call,
    const BatchNormBackward& form,
    const Placement& place) {
  const at::Tensor input = call.tensor(form.input);
  const auto of_channel = of_channel_cut(place);
  const Sizes channels{input.size(1)};
  call.use(form.grad, place);
  call.use(form.input, place);
  for (const int i : {form.weight, form.running_mean, form.running_var,
                      form.mean, form.invstd}) {
    // In evaluation the saved statistics are empty.
    if (call.has(i) && call.tensor(i).numel() != 0) {
      call.use(i, of_channel);
    } else if (call.has(i)) {
      call.use_whole(i);
    }
  }
  call.run();
  const auto of_parameter = of_channel.is_shard() ? of_channel : Partial();
  call.place_result(0, place, input.sizes());
  call.place_result(1, of_parameter, channels);
  call.place_result(2, of_parameter, channels);
}

bool batch_norm_backward(Call& call, const BatchNormBackward& form, bool by_kernel) {
  const at::Tensor input = call.tensor(form.input);
  const auto place = first_cut(
      call, {static_cast<size_t>(form.input), static_cast<size_t>(form.grad)});
  if (input.dim() < 2 || input.numel() == 0) {
    return false;
  }
  if (by_kernel && !place.is_shard()) {
    return false;
  }
  if (by_kernel && (place.is_shard(1) || !form.training)) {
    run_backward(call, form, place);
  } else if (!form.training) {
    return false;
  } else {
    // The library's own kernels would need what their forward had reserved.
    finish_backward(call, form, place);
  }
  return true;
}

std::array<bool, 3> mask_at(const Call& call, size_t i) {
  const auto list = call.at(i).toBoolList();
  return {list[0], list[1], list[2]};
}

/// …, train, eps, output_mask.
bool native_batch_norm_backward(Call& call) {
  if (is_out_form(call)) {
    return false;
  }
  BatchNormBackward form;
  form.training = call.boolean(7);
  form.eps = call.at(8).toDouble();
  form.mask = mask_at(call, 9);
  return batch_norm_backward(call, form, /*by_kernel=*/true);
}

/// …, update, eps, output_mask, reserve.
bool batch_norm_update_backward(Call& call) {
  BatchNormBackward form;
  form.training = call.boolean(7);
  form.eps = call.at(8).toDouble();
  form.mask = mask_at(call, 9);
  return batch_norm_backward(call, form, !form.training);
}

/// cuDNN's and MIOpen's, only of training: input, grad_output, …
bool library_batch_norm_backward(Call& call) {
  if (is_out_form(call)) {
    return false;
  }
  BatchNormBackward form;
  form.grad = 1;
  form.input = 0;
  form.eps = call.at(7).toDouble();
  return batch_norm_backward(call, form, /*by_kernel=*/false);
}

} // namespace

const Family& family() {
  static const char* const batch = "any dimension";
  static const char* const two_sums =
      "two sums a channel, where the input's gradient is asked for; by channels "
      "nothing";
  static const Family rows{
      {"aten::native_batch_norm_backward", native_batch_norm_backward, batch, two_sums},
      {"aten::batch_norm_backward", batch_norm_update_backward, batch, two_sums},
      {"aten::cudnn_batch_norm_backward", library_batch_norm_backward, batch, two_sums},
      {"aten::miopen_batch_norm_backward", library_batch_norm_backward, batch, two_sums},
  };
  return rows;
}

} // namespace accel::distributed::batch_norm_backward_rules
