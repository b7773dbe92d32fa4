// Batch norm over the global batch against LibTorch's own over the complete
// batch in one process.

#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/batch_share.h>
#include <accel/detail/communicator.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::BatchShare;
using accel::GradientState;
using torch::Tensor;

namespace {

AcceleratorOptions match_batch_norm() {
  return AcceleratorOptions().match_single_device(true);
}

void expect_close(const Tensor& ours, const Tensor& theirs, double tolerance) {
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  const auto scale = std::max(1.0, theirs.abs().max().item<double>());
  EXPECT_LE(
      (ours - theirs).abs().max().item<double>(), tolerance * scale);
}

/// What one pass leaves behind.
struct Outcome {
  Tensor output;
  Tensor input_gradient;
  std::vector<Tensor> parameter_gradients;
  Tensor running_mean;
  Tensor running_var;
};

/// Two training passes of the norm over `x`; the loss is a mean over samples
/// times `factor`.
template <typename Norm>
Outcome train(
    Norm norm,
    const Tensor& x,
    const Tensor& coefficients,
    double factor) {
  Outcome outcome;
  for (int pass = 0; pass < 2; ++pass) {
    auto input = x.detach().clone().requires_grad_();
    norm->zero_grad();
    outcome.output = norm->forward(input * (pass + 1));
    auto loss = (outcome.output.sin() * coefficients).flatten(1).sum(1).mean();
    (loss * factor).backward();
    outcome.input_gradient = input.grad();
  }
  for (const auto& parameter : norm->parameters()) {
    outcome.parameter_gradients.push_back(parameter.grad().clone());
  }
  outcome.running_mean = norm->running_mean.clone();
  outcome.running_var = norm->running_var.clone();
  return outcome;
}

template <typename Norm>
void expect_one_devices_norm(
    Norm norm,
    const Tensor& x,
    double tolerance = 1e-12) {
  auto& processes = accel::detail::communicator();
  const auto share =
      BatchShare::of(x.size(0), processes.rank(), processes.size());
  const auto coefficients = torch::randn_like(x);
  norm->to(x.scalar_type());
  for (auto& parameter : norm->parameters()) {
    torch::nn::init::uniform_(parameter, 0.5, 1.5);
  }
  Norm copy = std::dynamic_pointer_cast<
      typename Norm::ContainedType>(norm->clone());

  const auto theirs = train(copy, x, coefficients, 1);
  const auto rows = [&](const Tensor& whole) {
    return whole.narrow(0, share.offset, share.rows());
  };
  GradientState::get().set_share(share);
  const auto ours = train(
      norm,
      rows(x),
      rows(coefficients),
      share.weight() * static_cast<double>(processes.size()));
  GradientState::get().clear_share();

  if (!share.ghost()) {
    expect_close(ours.output, rows(theirs.output), tolerance);
    expect_close(
        ours.input_gradient / processes.size(),
        rows(theirs.input_gradient),
        tolerance);
  } else {
    EXPECT_TRUE(torch::equal(
        ours.input_gradient, torch::zeros_like(ours.input_gradient)));
  }
  for (size_t i = 0; i < theirs.parameter_gradients.size(); ++i) {
    auto sum = ours.parameter_gradients[i].clone();
    processes.all_reduce(sum);
    expect_close(
        sum / processes.size(), theirs.parameter_gradients[i], tolerance);
  }
  expect_close(ours.running_mean, theirs.running_mean, tolerance);
  expect_close(ours.running_var, theirs.running_var, tolerance);
}

Tensor samples(at::IntArrayRef sizes) {
  return torch::randn(sizes, torch::kDouble) * 3 + 7;
}

} // namespace

ACCEL_RANK_FUNCTION(norm_over_global_batch) {
  Accelerator accelerator(match_batch_norm());
  const int64_t world = accelerator.state().num_processes();
  torch::manual_seed(3);
  using namespace torch::nn;
  // Batches that leave some processes shorter, or with nothing.
  for (const int64_t global : {int64_t(2), int64_t(3), 2 * world, int64_t(11)}) {
    SCOPED_TRACE(global);
    expect_one_devices_norm(BatchNorm1d(5), samples({global, 5, 3}));
    expect_one_devices_norm(BatchNorm2d(4), samples({global, 4, 3, 2}));
    expect_one_devices_norm(
        BatchNorm2d(4),
        samples({global, 4, 3, 2}).contiguous(at::MemoryFormat::ChannelsLast));
    expect_one_devices_norm(BatchNorm3d(3), samples({global, 3, 2, 2, 2}));
    expect_one_devices_norm(
        BatchNorm2d(BatchNormOptions(4).momentum(0.3).eps(1e-2)),
        samples({global, 4, 3, 3}));
    expect_one_devices_norm(
        BatchNorm2d(BatchNormOptions(4).momentum(std::nullopt)),
        samples({global, 4, 3, 3}));
    expect_one_devices_norm(
        BatchNorm2d(BatchNormOptions(4).affine(false)),
        samples({global, 4, 3, 3}));
    if (global != world) {
      expect_one_devices_norm(BatchNorm1d(5), samples({global, 5}));
    }
    expect_one_devices_norm(
        BatchNorm2d(4), samples({global, 4, 8, 8}).to(torch::kFloat), 2e-6);
  }
}

TEST(BatchNorm, SeesTheGlobalBatch) {
  for (const int world : {1, 2, 3, 4}) {
    accel::test::run_and_expect_success("norm_over_global_batch", world);
  }
}

ACCEL_RANK_FUNCTION(norm_elsewhere) {
  Accelerator accelerator(match_batch_norm());
  torch::manual_seed(3);
  const auto rank = accelerator.state().process_index();
  const auto share = BatchShare::of(5, rank, 2);
  const auto whole = samples({5, 4, 3, 3});
  const auto rows = whole.narrow(0, share.offset, share.rows());
  const auto channels = torch::ones({4}, torch::kDouble);
  auto mean = torch::full({4}, 6., torch::kDouble);
  auto variance = torch::full({4}, 8., torch::kDouble);
  const auto norm = [&](const Tensor& x, bool training) {
    return torch::batch_norm(
        x, channels, channels, mean, variance, training, 0, 1e-5, false);
  };

  const auto evaluated = norm(whole, false);
  const auto instances = torch::instance_norm(
      whole, channels, channels, {}, {}, true, 0.1, 1e-5, false);
  const auto normalised = norm(whole, true);
  const auto trained = norm(rows, true);
  GradientState::get().set_share(share);
  // Evaluation uses the running statistics.
  expect_close(
      norm(rows, false),
      evaluated.narrow(0, share.offset, share.rows()),
      1e-12);
  // Every sample has statistics of its own, although instance norm computes
  // batch norm of one sample.
  expect_close(
      torch::instance_norm(
          rows, channels, channels, {}, {}, true, 0.1, 1e-5, false),
      instances.narrow(0, share.offset, share.rows()),
      1e-12);
  // Training sees the global batch also where nothing is recorded.
  {
    const torch::NoGradGuard no_grad;
    expect_close(
        norm(rows, true),
        normalised.narrow(0, share.offset, share.rows()),
        1e-12);
  }
  GradientState::get().clear_share();
  // Between batches there is nothing to share.
  EXPECT_TRUE(torch::equal(norm(rows, true), trained));
}

TEST(BatchNorm, LeavesEvaluationInstanceNormAndOtherBatchesAlone) {
  accel::test::run_and_expect_success("norm_elsewhere", 2);
}

ACCEL_RANK_FUNCTION(norm_in_lower_precision) {
  Accelerator accelerator(match_batch_norm());
  torch::manual_seed(3);
  const auto rank = accelerator.state().process_index();
  const auto share = BatchShare::of(7, rank, 2);
  const auto whole = samples({7, 4, 6, 6}).to(torch::kBFloat16);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto channels = torch::full({4}, 1.5, dtype);
    const auto norm = [&](const Tensor& x) {
      return torch::batch_norm(
          x, channels, channels, {}, {}, true, 0, 1e-5, false);
    };
    auto all = whole.clone().requires_grad_();
    const auto expected = norm(all);
    expected.to(torch::kFloat).sin().mean().backward();
    GradientState::get().set_share(share);
    auto own = whole.narrow(0, share.offset, share.rows())
                   .clone()
                   .requires_grad_();
    const auto output = norm(own);
    (output.to(torch::kFloat).sin().mean() * (share.weight() * 2))
        .backward();
    GradientState::get().clear_share();
    EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
    const auto part = [&](const Tensor& tensor) {
      return tensor.narrow(0, share.offset, share.rows()).to(torch::kFloat);
    };
    expect_close(output.to(torch::kFloat), part(expected.detach()), 2e-2);
    const double largest =
        all.grad().to(torch::kFloat).abs().max().item<double>();
    ASSERT_GT(largest, 0);
    expect_close(
        own.grad().to(torch::kFloat) / 2 / largest,
        part(all.grad()) / largest,
        3e-2);
  }
}

TEST(BatchNorm, ComputesLowPrecisionInFloat) {
  accel::test::run_and_expect_success("norm_in_lower_precision", 2);
}

ACCEL_RANK_FUNCTION(norm_twice_differentiated) {
  Accelerator accelerator(match_batch_norm());
  GradientState::get().set_share(
      BatchShare::of(4, accelerator.state().process_index(), 2));
  torch::nn::BatchNorm2d norm(3);
  auto x = torch::randn({2, 3, 2, 2}).requires_grad_();
  const auto y = norm->forward(x).square().sum();
  try {
    torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, true);
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("second derivative"),
        std::string::npos);
  }
}

TEST(BatchNorm, RefusesSecondDerivatives) {
  accel::test::run_and_expect_success("norm_twice_differentiated", 2);
}
