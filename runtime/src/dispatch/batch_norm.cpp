// Batch norm over the global batch.
//
// Every process holds some rows of the batch. Forward gathers each process's
// count, mean and sum of squares per channel; every process combines them alike
// and normalises its own rows. Backward sums two numbers per channel over the
// processes.
//
// What arrives from above in backward is `world` times the gradient of the
// global loss with respect to this process's rows, because the runtime weights
// the local loss by local * world / global. Backward is linear in it, and every
// process has the same factor, so the same factor is in what leaves; the mean
// over the processes takes it out. So the gradients of weight and bias stay
// local sums, and nothing is rescaled here.

#include "dispatch/kernels.h"
#include "dispatch/share.h"

#include <accel/data/whole_batch.h>
#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/instance_norm_native.h>
#include <torch/csrc/autograd/custom_function.h>

namespace accel::detail {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

/// A number per channel, in the shape that broadcasts with `x`.
Tensor per_channel(const Tensor& numbers, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = x.size(1);
  return numbers.view(shape);
}

/// The type that elementwise results are computed in; sums are in float64.
at::ScalarType compute_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct Moments {
  double count;
  /// Per channel, float64: the mean and the sum of squared distances from it.
  Tensor mean;
  Tensor squares;
};

Moments local_moments(const Tensor& x, bool ghost) {
  const int64_t channels = x.size(1);
  const int64_t count = ghost ? 0 : x.numel() / std::max<int64_t>(channels, 1);
  const auto options = x.options().dtype(at::kDouble);
  if (count == 0) {
    return {0, at::zeros({channels}, options), at::zeros({channels}, options)};
  }
  const auto [variance, mean] = at::var_mean(
      x.to(compute_type(x)), all_but_channels(x), /*correction=*/0);
  return {
      static_cast<double>(count),
      mean.to(at::kDouble),
      variance.to(at::kDouble) * count};
}

Moments global_moments(const Moments& local) {
  const auto packed = at::cat(
      {at::full({1}, local.count, local.mean.options()),
       local.mean,
       local.squares});
  const auto all =
      at::stack(communicator(Channel::kStatistics).all_gather(packed));
  const int64_t channels = local.mean.size(0);
  const auto counts = all.narrow(1, 0, 1);
  const auto means = all.narrow(1, 1, channels);
  const auto squares = all.narrow(1, 1 + channels, channels);
  const double count = counts.sum().item<double>();
  const auto mean = (counts * means).sum(0) / count;
  return {
      count,
      mean,
      (squares + counts * (means - mean).square()).sum(0)};
}

void update_running(
    const OptionalTensor& running,
    const Tensor& now,
    double momentum) {
  if (running && running->defined()) {
    running->copy_(running->to(at::kDouble) * (1 - momentum) + now * momentum);
  }
}

class GlobalBatchNorm : public torch::autograd::Function<GlobalBatchNorm> {
 public:
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& weight,
      const Tensor& bias,
      const Tensor& mean,
      const Tensor& variance,
      double count,
      double eps,
      bool ghost) {
    const auto inverse_deviation = (variance + eps).rsqrt();
    context->save_for_backward({x, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["ghost"] = ghost;
    const auto type = compute_type(x);
    if (x.scalar_type() == type) {
      // LibTorch's kernel for given statistics.
      return std::get<0>(at::native_batch_norm(
          x,
          weight,
          bias,
          mean.to(type),
          variance.to(type),
          /*training=*/false,
          /*momentum=*/0,
          eps));
    }
    const auto y = (x.to(type) - per_channel(mean.to(type), x)) *
            per_channel((inverse_deviation * weight).to(type), x) +
        per_channel(bias.to(type), x);
    return y.to(x.scalar_type());
  }

  static variable_list backward(
      AutogradContext* context,
      variable_list gradients) {
    TORCH_CHECK(
        !at::GradMode::is_enabled(),
        "accel: batch norm over the global batch has no second derivative "
        "(backward or grad was called with create_graph=true). Put the model "
        "into eval() for that pass, or use another norm in it.");
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor& weight = saved[1];
    const Tensor& mean = saved[2];
    const Tensor& inverse_deviation = saved[3];
    const double count = context->saved_data["count"].toDouble();
    const bool ghost = context->saved_data["ghost"].toBool();

    const auto type = compute_type(x);
    const auto dims = all_but_channels(x);
    const auto dy = gradients[0].to(type);
    const auto centred = x.to(type) - per_channel(mean.to(type), x);
    const int64_t channels = x.size(1);
    auto sums = ghost
        ? at::zeros({2, channels}, x.options().dtype(at::kDouble))
        : at::stack(
              {dy.sum(dims, /*keepdim=*/false, at::kDouble),
               (dy * centred).sum(dims, /*keepdim=*/false, at::kDouble)});
    Tensor grad_weight;
    Tensor grad_bias;
    if (context->needs_input_grad(1)) {
      grad_weight = (sums[1] * inverse_deviation).to(weight.scalar_type());
    }
    if (context->needs_input_grad(2)) {
      // A copy: `sums` changes below.
      grad_bias = sums[0].to(
          weight.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }

    communicator(Channel::kStatistics).all_reduce(sums);
    Tensor grad_x;
    if (context->needs_input_grad(0)) {
      if (ghost) {
        grad_x = at::zeros_like(x);
      } else {
        const auto scale = inverse_deviation * weight;
        const auto mean_dy = (sums[0] / count).to(type);
        const auto slope =
            (sums[1] / count * inverse_deviation.square()).to(type);
        grad_x = (dy - per_channel(mean_dy, x))
                     .addcmul_(centred, per_channel(slope, x), -1)
                     .mul_(per_channel(scale.to(type), x))
                     .to(x.scalar_type());
      }
    }
    return {
        grad_x,
        grad_weight,
        grad_bias,
        Tensor(),
        Tensor(),
        Tensor(),
        Tensor(),
        Tensor()};
  }
};

Tensor batch_norm(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  const auto share = training ? active_share() : std::nullopt;
  if (!share || input.dim() < 2) {
    return at::native::batch_norm(
        input,
        weight,
        bias,
        running_mean,
        running_var,
        training,
        momentum,
        eps,
        cudnn_enabled);
  }
  Moments moments;
  {
    const at::NoGradGuard no_grad;
    moments = global_moments(local_moments(input.detach(), share->ghost()));
    update_running(running_mean, moments.mean, momentum);
    update_running(
        running_var, moments.squares / (moments.count - 1), momentum);
  }
  // Function::apply takes no undefined tensors.
  const auto given = [](const OptionalTensor& tensor) {
    return tensor && tensor->defined();
  };
  const auto channels = input.options().dtype(compute_type(input));
  return GlobalBatchNorm::apply(
      input,
      given(weight) ? *weight : at::ones({input.size(1)}, channels),
      given(bias) ? *bias : at::zeros({input.size(1)}, channels),
      moments.mean,
      moments.squares / moments.count,
      moments.count,
      eps,
      share->ghost());
}

// Computes batch norm of a tensor of shape (1, N*C, ...): its own statistics
// for every sample, which no other process has a part in.
Tensor instance_norm(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool use_input_stats,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  const WholeBatchGuard no_statistics_of_others;
  return at::native::instance_norm(
      input,
      weight,
      bias,
      running_mean,
      running_var,
      use_input_stats,
      momentum,
      eps,
      cudnn_enabled);
}

} // namespace

void add_batch_norm(torch::Library& autograd) {
  autograd.impl("batch_norm", TORCH_FN(batch_norm));
  autograd.impl("instance_norm", TORCH_FN(instance_norm));
}

} // namespace accel::detail
