// Of two factors that are both in parts the one is gathered that is smaller.

#include "training.h"

#include "distributed/collectives.h"

namespace accel::test {
namespace {

struct Case {
  int64_t n, k, m;
  /// Of the input [n, k], and of the weight [m, k] as a linear layer has it.
  ad::Placement input, weight;
  /// What the result is, and how many bytes are gathered or sent.
  ad::Placement result;
  int64_t bytes;
};

ACCEL_RANK_FUNCTION(smaller_factor) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto mesh = accelerator.device_mesh();
  const auto rows = ad::Shard(0), columns = ad::Shard(1);
  const std::vector<Case> cases{
      // The weight, 6 x 4; the input, 8 x 6.
      {40, 4, 6, rows, rows, rows, 6 * 4 * 8},
      {8, 6, 40, rows, rows, columns, 8 * 6 * 8},
      // The weight; or half of the input, whose sum of few numbers is sent later.
      {40, 4, 6, rows, columns, rows, 6 * 4 * 8},
      {2, 40, 6, rows, columns, ad::Partial(), 2 * 40 * 8 / 2},
      // The input; or half of the weight.
      {4, 6, 40, columns, rows, columns, 4 * 6 * 8},
      // Nothing.
      {6, 40, 4, columns, columns, ad::Partial(), 0}};
  torch::manual_seed(2);
  for (const auto& one : cases) {
    const auto input = torch::randn({one.n, one.k}, torch::kDouble);
    const auto weight = torch::randn({one.m, one.k}, torch::kDouble);
    const auto bias = torch::randn({one.m}, torch::kDouble);
    const auto x = ad::distribute_tensor(input, mesh, {one.input});
    const auto w = ad::distribute_tensor(weight, mesh, {one.weight});
    const auto check = [&](const Tensor& y, const Tensor& expected, const char* how) {
      EXPECT_EQ(ad::placements(y), std::vector<ad::Placement>{one.result})
          << how << one.n << ' ' << one.k << ' ' << one.m;
      EXPECT_TRUE(torch::allclose(accelerator.full(y), expected, 1e-12, 1e-12));
    };
    const auto before = ad::traffic().bytes;
    const auto y = x.mm(w.t());
    EXPECT_EQ(ad::traffic().bytes - before, one.bytes)
        << one.n << ' ' << one.k << ' ' << one.m;
    check(y, input.mm(weight.t()), "mm ");
    check(torch::addmm(bias, x, w.t()), torch::addmm(bias, input, weight.t()), "addmm ");
    const c10::InferenceMode inference;
    check(torch::linear(x, w, bias), torch::linear(input, weight, bias), "linear ");
  }
}

TEST(SmallerFactor, IsWhatIsSent) {
  run_and_expect_success("smaller_factor", 2);
}

} // namespace
} // namespace accel::test
