#include <accel/lomo.h>

#include "core/registry.h"
#include "core/runtime.h"

#include <accel/autocast.h>
#include <accel/distributed/tensor.h>
#include <accel/gradient_state.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace accel {
namespace {

using torch::autograd::PostAccumulateGradHook;

/// Hands a gradient on, and leaves none.
class TakeGradient : public PostAccumulateGradHook {
 public:
  using Use = std::function<void(const at::Tensor&, const at::Tensor&)>;

  explicit TakeGradient(const Use& use) : use_(use) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    const at::NoGradGuard no_grad;
    const auto gradient =
        std::exchange(parameter.mutable_grad(), at::Tensor());
    if (gradient.defined()) {
      use_(parameter, gradient);
    }
  }

 private:
  const Use& use_;
};

/// While it lives the gradients of the parameters go to `use`, and to nobody else:
/// there is room for one such hook, and the reducer's is put aside.
class TakingGradients {
 public:
  TakingGradients(
      const std::vector<at::Tensor>& parameters,
      const TakeGradient::Use& use)
      : parameters_(parameters) {
    for (const auto& parameter : parameters_) {
      auto& place = torch::autograd::impl::post_acc_grad_hooks(parameter);
      before_.push_back(std::move(place));
      place = std::make_unique<TakeGradient>(use);
    }
  }
  ~TakingGradients() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::autograd::impl::post_acc_grad_hooks(parameters_[i]) =
          std::move(before_[i]);
    }
  }
  TakingGradients(const TakingGradients&) = delete;
  TakingGradients& operator=(const TakingGradients&) = delete;

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<std::unique_ptr<PostAccumulateGradHook>> before_;
};

std::vector<at::Tensor> parameters_of_models(detail::Runtime& runtime) {
  std::vector<at::Tensor> result;
  std::unordered_set<const void*> seen;
  for (const auto* model : runtime.registry().models()) {
    for (const auto& parameter : model->parameters()) {
      if (parameter.requires_grad() &&
          seen.insert(parameter.unsafeGetTensorImpl()).second) {
        result.push_back(parameter);
      }
    }
  }
  return result;
}

void check(
    detail::Runtime& runtime,
    const std::vector<at::Tensor>& parameters,
    const at::Tensor& loss,
    double learning_rate,
    const LomoOptions& options) {
  TORCH_CHECK(
      !parameters.empty(),
      "accel: lomo_backward updates the parameters of the models that were "
      "prepared, and there are none. Call accelerator.prepare(model) first.");
  TORCH_CHECK(
      loss.numel() == 1,
      "accel: lomo_backward needs a loss with one element, got sizes ",
      loss.sizes());
  TORCH_CHECK(
      std::isfinite(learning_rate),
      "accel: lomo_backward was given the learning rate ", learning_rate);
  for (const auto& limit : {options.clip_grad_value(), options.clip_grad_norm()}) {
    TORCH_CHECK(
        !limit || *limit > 0,
        "accel: lomo_backward was told to clip gradients at ",
        limit.value_or(0), "; a limit is positive.");
  }
  const auto& state = GradientState::get();
  TORCH_CHECK(
      state.num_steps == 1 && !runtime.reducer().holding(),
      "accel: lomo_backward does not accumulate gradients "
      "(gradient_accumulation_steps is ",
      state.num_steps,
      "): each one is used and dropped at once. Use backward and an optimizer, or "
      "gradient_accumulation_steps(1).");
  TORCH_CHECK(
      runtime.scaler() == nullptr,
      "accel: lomo_backward does not work with mixed_precision fp16: a parameter "
      "is updated before it is known whether all gradients are finite. Use bf16 "
      "or no.");
  for (const auto& parameter : parameters) {
    TORCH_CHECK(
        !parameter.grad().defined(),
        "accel: lomo_backward found a gradient from an earlier backward, which it "
        "would add to. Call zero_grad() before.");
  }
}

} // namespace

void lomo_backward(
    const torch::Tensor& loss,
    double learning_rate,
    const LomoOptions& options) {
  auto& runtime = detail::Runtime::require();
  const auto parameters = parameters_of_models(runtime);
  check(runtime, parameters, loss, learning_rate, options);
  runtime.finish_batch_check();
  if (runtime.sharded() != nullptr) {
    runtime.sharded()->check_plan();
  }
  const auto& state = runtime.state();
  const bool averages = state.use_distributed() && !state.match_single_device();
  // A gradient of all processes, where its parameter is.
  const auto whole = [&](const at::Tensor& parameter, const at::Tensor& gradient) {
    at::Tensor all = gradient;
    if (!distributed::is_distributed(parameter)) {
      all = distributed::full_tensor(gradient);
    }
    if (averages) {
      all = all.is_sparse() ? all.to_dense() : all.clone();
      runtime.communicator(detail::Channel::kGradients).all_reduce(all);
      all.div_(state.num_processes());
    }
    return all;
  };
  const auto run = [&](const TakeGradient::Use& use, bool keep_graph) {
    const TakingGradients taking(parameters, use);
    const AutocastGuard no_autocast =
        state.mixed_precision() == MixedPrecision::kNo
        ? AutocastGuard()
        : AutocastGuard(
              state.device().type(), at::kBFloat16, /*enabled=*/false);
    loss.backward({}, keep_graph);
  };
  double scale = 1;
  if (options.clip_grad_norm()) {
    at::Tensor squares;
    run(
        [&](const at::Tensor& parameter, const at::Tensor& gradient) {
          const auto all = whole(parameter, gradient);
          const auto norm = (all.is_sparse() ? all.coalesce().values() : all)
                                .to(at::kDouble).norm();
          squares = squares.defined() ? squares + norm.square() : norm.square();
        },
        /*keep_graph=*/true);
    const double norm =
        squares.defined() ? std::sqrt(squares.item<double>()) : 0;
    // As clip_grad_norm_ does it.
    scale = std::min(1.0, *options.clip_grad_norm() / (norm + 1e-6));
  }
  run(
      [&](const at::Tensor& parameter, const at::Tensor& gradient) {
        auto all = whole(parameter, gradient);
        if (const auto limit = options.clip_grad_value()) {
          all = all.is_sparse() ? all.to_dense() : all;
          all = all.clamp(-*limit, *limit);
        }
        at::Tensor(parameter).add_(all, -learning_rate * scale);
      },
      /*keep_graph=*/false);
  if (runtime.sharded() != nullptr) {
    runtime.sharded()->settle();
  }
}

} // namespace accel
