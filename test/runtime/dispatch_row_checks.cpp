// Rows of predictions that meet rows of targets in different dimensions.

#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/detail/communicator.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::BatchShare;
using accel::GradientState;
using torch::Tensor;

namespace {

struct Combination {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&)> compute;
};

std::vector<Combination> combinations() {
  namespace F = torch::nn::functional;
  return {
      {"mse_loss", [](auto& a, auto& b) { return torch::mse_loss(a, b); }},
      {"l1_loss", [](auto& a, auto& b) { return torch::l1_loss(a, b); }},
      {"smooth_l1_loss",
       [](auto& a, auto& b) { return torch::smooth_l1_loss(a, b); }},
      {"huber_loss", [](auto& a, auto& b) { return torch::huber_loss(a, b); }},
      {"F::mse_loss", [](auto& a, auto& b) { return F::mse_loss(a, b); }},
      {"MSELoss", [](auto& a, auto& b) { return torch::nn::MSELoss()(a, b); }},
      {"L1Loss", [](auto& a, auto& b) { return torch::nn::L1Loss()(a, b); }},
      {"SmoothL1Loss",
       [](auto& a, auto& b) { return torch::nn::SmoothL1Loss()(a, b); }},
      {"HuberLoss",
       [](auto& a, auto& b) { return torch::nn::HuberLoss()(a, b); }},
      {"difference", [](auto& a, auto& b) { return (a - b).pow(2).mean(); }},
      {"product", [](auto& a, auto& b) { return (a * b).mean(); }},
      {"eq", [](auto& a, auto& b) { return (a == b).sum(); }},
      {"ne", [](auto& a, auto& b) { return a.ne(b).sum(); }}};
}

void expect_error(const Combination& combination, Tensor a, Tensor b) {
  try {
    combination.compute(a, b);
    ADD_FAILURE() << combination.name << " took " << a.sizes() << " and "
                  << b.sizes();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_NE(text.find(c10::str(a.sizes())), std::string::npos) << text;
    EXPECT_NE(text.find(c10::str(b.sizes())), std::string::npos) << text;
    EXPECT_NE(text.find("view_as"), std::string::npos) << text;
  }
}

/// Allowed, and LibTorch's own number.
void expect_plain(const Combination& combination, Tensor a, Tensor b) {
  const auto share = GradientState::get().share();
  const auto with_share = combination.compute(a, b);
  GradientState::get().clear_share();
  EXPECT_TRUE(torch::equal(with_share, combination.compute(a, b)))
      << combination.name << a.sizes() << b.sizes();
  if (share) {
    GradientState::get().set_share(*share);
  }
}

} // namespace

ACCEL_RANK_FUNCTION(rows_meet_rows) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(2);
  const int64_t world = accelerator.num_processes();
  const auto share_of = [&](int64_t global) {
    return BatchShare::of(global, accelerator.process_index(), world);
  };
  // Shares of several rows, of ghosts, and of one row each.
  for (const int64_t global : {8 * world, int64_t(3), world}) {
    const auto share = share_of(global);
    SCOPED_TRACE(c10::str(share.rows(), " of ", global));
    const int64_t b = share.rows();
    GradientState::get().set_share(share);
    for (const auto& combination : combinations()) {
      SCOPED_TRACE(combination.name);
      const bool is_loss = combination.name.find("oss") != std::string::npos;
      if (b > 1 || combination.name != "product") {
        expect_error(combination, torch::rand({b, 1}), torch::rand({b}));
        expect_error(combination, torch::rand({b}), torch::rand({b, 1}));
      }
      if (b > 1 && combination.name != "product") {
        expect_error(combination, torch::rand({b, 1}), torch::rand({1, b}));
      }
      if (b > 1) {
        expect_error(
            combination,
            torch::rand({b, 5, 1}).requires_grad_(),
            torch::rand({b, 5}));
      }
      expect_plain(combination, torch::rand({b, 1}), torch::rand({b, 1}));
      expect_plain(combination, torch::rand({b}), torch::rand({b}));
      expect_plain(combination, torch::rand({b, 3}), torch::rand({b, 1}));
      expect_plain(combination, torch::rand({b, 3}), torch::rand({3}));
      expect_plain(combination, torch::rand({b, 3}), torch::rand({}));
      expect_plain(combination, torch::rand({b, 7, 1}), torch::rand({b, 1, 7}));
      if (is_loss) {
        expect_error(
            combination, torch::rand({3 * b, 1}), torch::rand({3 * b}));
      } else {
        // Not the size of this process's part.
        expect_plain(
            combination, torch::rand({3 * b, 1}), torch::rand({3 * b}));
      }
    }
    const auto x = torch::rand({b, 1}).requires_grad_();
    const auto y = torch::rand({b, 1});
    torch::mse_loss(x, y).backward();
    EXPECT_TRUE(torch::allclose(x.grad(), (x - y).detach() * (2. / b)));
    {
      const c10::InferenceMode inference;
      for (const auto& combination : combinations()) {
        if (b > 1) {
          expect_error(combination, torch::rand({b, 1}), torch::rand({b}));
        }
      }
    }
    GradientState::get().clear_share();
    for (const auto& combination : combinations()) {
      expect_plain(combination, torch::rand({b, 1}), torch::rand({b}));
    }
  }
}

TEST(RowChecks, RefuseRowsThatMeetRows) {
  for (const int world : {2, 3}) {
    accel::test::run_and_expect_success("rows_meet_rows", world);
  }
}

ACCEL_RANK_FUNCTION(rows_meet_rows_of_one_device) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  GradientState::get().set_share(BatchShare::of(4, 0, 1));
  for (const auto& combination : combinations()) {
    expect_plain(combination, torch::rand({4, 1}), torch::rand({4}));
  }
}

TEST(RowChecks, LeaveOneProcessAlone) {
  accel::test::run_and_expect_success("rows_meet_rows_of_one_device", 1);
}
