#include "distributed/rules/common.h"

// Layer and group norms work row by row. Batch norms are cut along channels, each
// on its own, or along any other dimension: then the statistics are those of all
// rows, put together out of each process's mean and variance, as accurate as
// Welford's algorithm on one device.

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

// ---- Batch norm, forward.

/// Where the arguments of a form of batch norm are; -1 for none.
struct BatchNorm {
  int input = 0;
  int weight = 1;
  int bias = 2;
  int running_mean = 3;
  int running_var = 4;
  double momentum = 0;
  double eps = 0;
  /// Statistics of the batch, else the running ones.
  bool training = true;
  /// What follows output, mean and inverse deviation among the results: an
  /// empty reserve, updated copies of the running statistics.
  bool reserve = false;
  bool functional = false;
};

/// The dimensions of a channel's elements.
std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) {
      dims.push_back(d);
    }
  }
  return dims;
}

/// `[C]` beside an input: `[1, C, 1, …]`.
at::Tensor of_channels(const at::Tensor& values, const at::Tensor& input) {
  Sizes sizes(input.dim(), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

/// What statistics are computed in and saved as, as the kernels do.
at::ScalarType statistics_type(const Call& call, const BatchNorm& form) {
  const auto& input = call.tensor(form.input);
  if (!input.is_cpu()) {
    return wide(input.scalar_type());
  }
  for (const int i : {form.weight, form.bias, form.running_mean}) {
    if (i >= 0 && call.has(i)) {
      return call.tensor(i).scalar_type();
    }
  }
  return input.scalar_type();
}

/// The moments of each channel of an input that is cut in another dimension.
Moments channel_moments(
    const Call& call,
    const at::Tensor& local,
    c10::IntArrayRef sizes,
    const Placement& place) {
  const auto values = local.to(wide(local.scalar_type()));
  const auto [var, mean] =
      at::var_mean(values, all_but_channels(local), /*correction=*/0, false);
  const int64_t n = sizes[place.dim()];
  const int64_t count = c10::multiply_integers(sizes) / sizes[1];
  return combined_moments(call, mean, var, n, count / n, place);
}

/// Moves running statistics towards those of a batch.
void update(const at::Tensor& running, const at::Tensor& batch, double momentum) {
  running.mul_(1 - momentum).add_(batch.to(running.scalar_type()), momentum);
}

/// A tensor of one value a channel, which a kernel is given a slice of where the
/// channels are cut.
Placement of_channel_cut(const Placement& place) {
  return place.is_shard(1) ? place.with_dim(0) : Replicate();
}

/// Running statistics can be written in their place.
bool is_writable(const Call& call, int i) {
  return i < 0 || !call.has(i) || !call.place(i).is_partial();
}

/// This process's part of a whole tensor, of the place of argument i.
at::Tensor part_like(const Call& call, int i, const at::Tensor& whole) {
  return redistribute_local(
      call.axis(), whole, Replicate(), call.place(i), whole.sizes(),
      call.name().c_str());
}

/// The statistics of the batch: `mean` and `var` (biased, `count` elements).
struct Statistics {
  at::Tensor mean;
  at::Tensor var;
  int64_t count = 0;
};

/// Leaves output, saved statistics and what else the form has, out of whole
/// statistics.
void finish_training(
    Call& call,
    const BatchNorm& form,
    const at::Tensor& local,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const Statistics& batch,
    const Placement& place,
    c10::IntArrayRef sizes) {
  const auto type = statistics_type(call, form);
  const auto mean = batch.mean.to(type);
  const auto var = batch.var.to(type);
  auto output = std::get<0>(at::native_batch_norm(
      local, weight, bias, mean, var, /*training=*/false, 0, form.eps));
  // One element has no unbiased variance: not a number, as on one device.
  const auto unbiased = batch.var *
      (static_cast<double>(batch.count) / static_cast<double>(batch.count - 1));
  const std::array<int, 2> running{form.running_mean, form.running_var};
  const std::array<const at::Tensor*, 2> seen{&batch.mean, &unbiased};
  std::array<at::Tensor, 2> updated;
  for (size_t k = 0; k < 2; ++k) {
    const int i = running[k];
    if (i < 0 || !call.has(i)) {
      continue;
    }
    if (form.functional) {
      updated[k] = call.local_as(call.tensor(i), Replicate()).clone();
      update(updated[k], *seen[k], form.momentum);
    } else {
      update(call.local(i), part_like(call, i, *seen[k]), form.momentum);
    }
  }
  const auto invstd = batch.var.add(form.eps).rsqrt().to(type);
  const auto reserve = at::empty({0}, local.options().dtype(at::kByte));
  if (form.functional && form.reserve) {
    call.finish({output, mean, invstd, reserve, updated[0], updated[1]});
  } else if (form.functional) {
    call.finish({output, mean, invstd, updated[0], updated[1]});
  } else if (form.reserve) {
    call.finish({output, mean, invstd, reserve});
  } else {
    call.finish({output, mean, invstd});
  }
  call.place_result(0, place, sizes);
}

/// Channels are cut: each process has some of them in full.
bool cut_channels(Call& call, const BatchNorm& form, const Placement& place) {
  const at::Tensor input = call.tensor(form.input);
  const int64_t channels = input.size(1);
  const auto of_channel = of_channel_cut(place);
  // Kernels write running statistics: into slices, which come back.
  std::array<at::Tensor, 2> targets;
  const std::array<int, 2> running{form.running_mean, form.running_var};
  for (size_t k = 0; k < 2; ++k) {
    if (running[k] >= 0 && call.has(running[k])) {
      targets[k] = call.tensor(running[k]);
    }
  }
  call.use(form.input, place);
  for (const int i :
       {form.weight, form.bias, form.running_mean, form.running_var}) {
    if (i >= 0) {
      call.use(i, of_channel);
    }
  }
  std::array<at::Tensor, 2> slices;
  for (size_t k = 0; k < 2; ++k) {
    if (targets[k].defined()) {
      slices[k] = call.tensor(running[k]).clone();
      call.set(running[k], slices[k]);
    }
  }
  call.run();
  const size_t statistics = form.functional ? call.info().results - 2 : 3;
  call.place_result(0, place, input.sizes());
  for (size_t k = 1; k < statistics && k < 3; ++k) {
    // In evaluation there are none.
    if (call.result(k).isTensor() && call.local_result(k).defined() &&
        call.local_result(k).dim() == 1 && call.local_result(k).size(0) != 0) {
      call.place_result(k, of_channel, Sizes{channels});
    }
  }
  if (form.functional) {
    call.place_result(call.info().results - 2, of_channel, Sizes{channels});
    call.place_result(call.info().results - 1, of_channel, Sizes{channels});
    return true;
  }
  for (size_t k = 0; k < 2; ++k) {
    if (form.training && targets[k].defined()) {
      call.local(targets[k])
          .copy_(redistribute_local(
              call.axis(), slices[k], of_channel, call.place(targets[k]),
              {channels}, call.name().c_str()));
    }
  }
  return true;
}

bool batch_norm(Call& call, const BatchNorm& form) {
  const auto place = call.place(form.input);
  const at::Tensor input = call.tensor(form.input);
  if (!place.is_shard() || input.dim() < 2 || input.numel() == 0) {
    return false;
  }
  for (const int i : {form.running_mean, form.running_var}) {
    if (form.training && !form.functional && !is_writable(call, i)) {
      return false;
    }
  }
  if (place.is_shard(1)) {
    return cut_channels(call, form, place);
  }
  const Sizes sizes(input.sizes().begin(), input.sizes().end());
  if (!form.training) {
    call.use_local(form.input);
    for (const int i :
         {form.weight, form.bias, form.running_mean, form.running_var}) {
      if (i >= 0) {
        call.use_whole(i);
      }
    }
    call.run();
    call.place_result(0, place, sizes);
    return true;
  }
  const int64_t count = input.numel() / input.size(1);
  const auto local = call.local(form.input);
  const auto whole = [&](int i) {
    return i >= 0 && call.has(i) ? call.local_as(call.tensor(i), Replicate())
                                 : at::Tensor();
  };
  const auto moments = channel_moments(call, local, sizes, place);
  const Statistics batch{
      moments.mean, moments.squares / static_cast<double>(count), count};
  finish_training(
      call, form, local, whole(form.weight), whole(form.bias), batch, place,
      sizes);
  return true;
}

/// An overload for `out=`, of which there are several. (What is written says
/// nothing: running statistics are, too.)
bool is_out_form(const Call& call) {
  return call.op().schema().arguments().back().is_out();
}

/// native_batch_norm, _native_batch_norm_legit and its functional form, cuDNN's
/// and MIOpen's: …, training, momentum, eps.
bool native_batch_norm(Call& call) {
  if (is_out_form(call)) {
    return false;
  }
  BatchNorm form;
  form.training = call.boolean(5);
  form.momentum = call.at(6).toDouble();
  form.eps = call.at(7).toDouble();
  form.reserve = call.name() == "aten::cudnn_batch_norm";
  form.functional = call.name() == "aten::_native_batch_norm_legit_functional";
  return batch_norm(call, form);
}

/// Without running statistics.
bool batch_norm_no_stats(Call& call) {
  BatchNorm form;
  form.running_mean = -1;
  form.running_var = -1;
  form.training = call.boolean(3);
  form.momentum = call.at(4).toDouble();
  form.eps = call.at(5).toDouble();
  return batch_norm(call, form);
}

/// input, weight, bias, running_mean, running_var, momentum, eps.
bool batch_norm_update(Call& call) {
  if (is_out_form(call)) {
    return false;
  }
  BatchNorm form;
  form.momentum = call.at(5).toDouble();
  form.eps = call.at(6).toDouble();
  form.reserve = true;
  form.functional = call.name() == "aten::_batch_norm_with_update_functional";
  return batch_norm(call, form);
}

/// The same arguments; only reads the running statistics.
bool batch_norm_evaluation(Call& call) {
  if (is_out_form(call)) {
    return false;
  }
  BatchNorm form;
  form.training = false;
  return batch_norm(call, form);
}

// ---- Batch norm, backward.

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

// ---- The pieces of synchronised batch norm.

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

bool batch_norm_backward_reduce(Call& call) {
  if (!elementwise(call, {0, 1})) {
    return false;
  }
  for (size_t k = 0; k < 4; ++k) {
    call.place_result(k, Partial());
  }
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
  static const char* const batch = "any dimension";
  static const char* const moments =
      "in training mean and variance of each process's rows; by channels only "
      "the running statistics";
  static const char* const two_sums =
      "two sums a channel, where the input's gradient is asked for; by channels "
      "nothing";
  static const char* const by_channels =
      "other dimensions than the channels'";
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
      {"aten::native_batch_norm", native_batch_norm, batch, moments},
      {"aten::_native_batch_norm_legit", native_batch_norm, batch, moments},
      {"aten::_native_batch_norm_legit.no_stats", batch_norm_no_stats, batch, moments},
      {"aten::_native_batch_norm_legit_functional", native_batch_norm, batch, moments},
      {"aten::_native_batch_norm_legit_no_training", batch_norm_evaluation, batch, "nothing"},
      {"aten::cudnn_batch_norm", native_batch_norm, batch, moments},
      {"aten::miopen_batch_norm", native_batch_norm, batch, moments},
      {"aten::_batch_norm_with_update", batch_norm_update, batch, moments},
      {"aten::_batch_norm_with_update_functional", batch_norm_update, batch, moments},
      {"aten::_batch_norm_no_update", batch_norm_evaluation, batch, "nothing"},
      {"aten::native_batch_norm_backward", native_batch_norm_backward, batch, two_sums},
      {"aten::batch_norm_backward", batch_norm_update_backward, batch, two_sums},
      {"aten::cudnn_batch_norm_backward", library_batch_norm_backward, batch, two_sums},
      {"aten::miopen_batch_norm_backward", library_batch_norm_backward, batch, two_sums},
      {"aten::batch_norm_stats", batch_norm_stats, by_channels,
       "mean and variance of each process's rows"},
      {"aten::batch_norm_update_stats", batch_norm_update_stats,
       "other dimensions than the channels', without running statistics",
       "mean and variance of each process's rows"},
      {"aten::batch_norm_elemt", batch_norm_elemt, by_channels, "nothing"},
      {"aten::batch_norm_backward_elemt", batch_norm_backward_elemt, by_channels, "nothing"},
      {"aten::batch_norm_backward_reduce", batch_norm_backward_reduce, by_channels,
       "nothing; the results are P"},
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
