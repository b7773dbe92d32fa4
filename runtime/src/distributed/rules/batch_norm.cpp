#include "distributed/rules/batch_norm.h"

#include <array>

// Batch norms are cut along channels, each on its own, or along any other
// dimension: then the statistics are those of all rows, put together out of
// each process's mean and variance, as accurate as Welford's algorithm on one
// device.

namespace accel::distributed::batch_norm_rules {
namespace {

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

/// Moves running statistics towards those of a batch.
void update(const at::Tensor& running, const at::Tensor& batch, double momentum) {
  running.mul_(1 - momentum).add_(batch.to(running.scalar_type()), momentum);
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

} // namespace

const Family& family() {
  static const char* const batch = "any dimension";
  static const char* const moments =
      "in training mean and variance of each process's rows; by channels only "
      "the running statistics";
  static const Family rows{
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
  };
  return rows;
}

} // namespace accel::distributed::batch_norm_rules
