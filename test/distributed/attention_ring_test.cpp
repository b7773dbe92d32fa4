// Keys and values that go around an axis, against attention written out in plain
// LibTorch.

#include "thread_ranks.h"

#include "distributed/axis.h"
#include "distributed/collectives.h"
#include "distributed/passing.h"

#include <accel/distributed/tensor.h>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace accel::distributed::test::ring {
namespace {

using torch::Tensor;

/// One attention and its inputs.
struct Case {
  Case(std::string name, int64_t queries, int64_t keys, bool causal = false)
      : name(std::move(name)), queries(queries), keys(keys), causal(causal) {}

  std::string name;
  int64_t queries;
  int64_t keys;
  bool causal;
  /// Of float, which is added to the scores; undefined for none.
  Tensor mask;
  int64_t heads = 2;
  int64_t key_heads = 2;
  std::optional<double> scale;
};

/// Whether LibTorch's fused attention on the CPU takes queries in groups; else they
/// are products, which gather.
constexpr bool kHasFusedGroups = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor numbers(torch::IntArrayRef sizes, double phase) {
  const int64_t n = c10::multiply_integers(sizes);
  return torch::sin(torch::arange(n, torch::kDouble) * 1.7 + phase).view(sizes);
}

std::vector<Case> cases() {
  std::vector<Case> all{
      {"even", 8, 8}, {"uneven", 7, 7}, {"other lengths", 5, 9},
      {"causal", 8, 8, true}, {"uneven and causal", 7, 7, true},
      {"causal, of fewer keys", 9, 5, true}, {"causal, of more keys", 5, 9, true},
      {"fewer positions than processes", 2, 2, true},
      {"one query", 1, 6}, {"one key", 6, 1}};
  Case scaled{"scaled", 6, 6, true};
  scaled.scale = 0.3;
  all.push_back(scaled);
  Case groups{"queries in groups for each key", 7, 7, true};
  groups.heads = 4;
  all.push_back(groups);
  const auto masked = [&](const char* name, const Tensor& mask) {
    Case one{name, 7, 5};
    one.mask = mask;
    all.push_back(one);
  };
  masked("mask", numbers({7, 5}, 3));
  masked("mask of samples", numbers({3, 1, 7, 5}, 4));
  masked("mask of heads", numbers({1, 2, 1, 5}, 4));
  masked("mask of rows", numbers({7, 1}, 5));
  // Some queries see no key of some process, and the fourth sees none at all.
  auto hidden = torch::zeros({7, 5}, torch::kDouble);
  hidden.slice(0, 0, 2).slice(1, 0, 3).fill_(-kInfinity);
  hidden[3].fill_(-kInfinity);
  hidden[6].slice(0, 1, 5).fill_(-kInfinity);
  masked("hidden keys", hidden);
  return all;
}

struct Outcome {
  Tensor out;
  std::vector<Tensor> gradients;
};

Outcome outcome(
    const Tensor& out,
    const Tensor& weights,
    const std::vector<Tensor>& inputs) {
  return {out.detach(), torch::autograd::grad({(out * weights).sum()}, inputs)};
}

/// Attention as it is written down.
Tensor written_out(const Case& one, Tensor q, Tensor k, Tensor v) {
  k = k.repeat_interleave(one.heads / one.key_heads, 1);
  v = v.repeat_interleave(one.heads / one.key_heads, 1);
  auto scores = q.matmul(k.transpose(2, 3)) *
      one.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  if (one.mask.defined()) {
    scores = scores + one.mask;
  }
  if (one.causal) {
    const auto later = torch::ones({one.queries, one.keys}, torch::kBool).triu(1);
    scores = scores.masked_fill(later, -kInfinity);
  }
  const auto most = scores.detach().amax(-1, true);
  const auto parts = torch::exp(scores - most.masked_fill(most == -kInfinity, 0));
  const auto sum = parts.sum(-1, true);
  return (parts / sum.masked_fill(sum == 0, 1)).matmul(v);
}

std::vector<Tensor> inputs_of(const Case& one) {
  return {
      numbers({3, one.heads, one.queries, 4}, 0).requires_grad_(),
      numbers({3, one.key_heads, one.keys, 4}, 1).requires_grad_(),
      numbers({3, one.key_heads, one.keys, 4}, 2).requires_grad_()};
}

double difference(const Tensor& a, const Tensor& b) {
  return a.sizes() != b.sizes() ? kInfinity
      : a.numel() == 0          ? 0
                                : (a - b).abs().max().item<double>();
}

void expect_close(const std::string& what, const Tensor& a, const Tensor& b) {
  EXPECT_LE(difference(full_tensor(a), b), 1e-12) << what;
}

/// On every rank: forward and backward along `axis` beside what is expected.
void compare(
    const DeviceMesh& mesh,
    const std::vector<Placement>& places,
    const std::vector<Placement>& key_places,
    const Case& one,
    const Outcome& expected,
    const std::function<void(const Tensor&)>& look) {
  SCOPED_TRACE(one.name);
  const auto plain = inputs_of(one);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < plain.size(); ++i) {
    inputs.push_back(
        distribute_tensor(plain[i].detach(), mesh, i == 0 ? places : key_places)
            .requires_grad_());
  }
  const auto out = torch::scaled_dot_product_attention(
      inputs[0], inputs[1], inputs[2],
      one.mask.defined() ? std::optional<Tensor>(one.mask) : std::nullopt, 0.0,
      one.causal, one.scale, one.heads != one.key_heads);
  look(out);
  const auto weights = distribute_tensor(numbers(out.sizes(), 7), mesh, places);
  const auto actual = outcome(out, weights, inputs);
  expect_close(one.name + ": attention", actual.out, expected.out);
  for (size_t i = 0; i < inputs.size(); ++i) {
    expect_close(
        one.name + ": gradient " + std::to_string(i), actual.gradients[i],
        expected.gradients[i]);
  }
}

std::vector<Outcome> expected_outcomes(const std::vector<Case>& all) {
  std::vector<Outcome> expected;
  for (const auto& one : all) {
    const auto inputs = inputs_of(one);
    const auto out = written_out(one, inputs[0], inputs[1], inputs[2]);
    expected.push_back(outcome(out, numbers(out.sizes(), 7), inputs));
  }
  return expected;
}

TEST(RingAttention, IsAttention) {
  const auto all = cases();
  const auto expected = expected_outcomes(all);
  for (const int64_t world : {2, 3, 4}) {
    as_ranks(world, [&](const DeviceMesh& mesh) {
      mesh.axes()[0]->set_passes_keys_on(true);
      for (size_t i = 0; i < all.size(); ++i) {
        const auto before = traffic();
        compare(
            mesh, {Shard(2)}, {Shard(2)}, all[i], expected[i],
            [&](const Tensor& out) {
              if (std::min(all[i].queries, all[i].keys) < world) {
                return; // whole: `OfPartsOfAnyLength` has empty parts
              }
              EXPECT_EQ(placements(out.detach()), std::vector<Placement>{Shard(2)})
                  << all[i].name;
              if (all[i].heads != all[i].key_heads && !kHasFusedGroups) {
                return;
              }
              EXPECT_EQ(traffic().gathers, before.gathers) << all[i].name;
              EXPECT_EQ(traffic().exchanges - before.exchanges, world - 1)
                  << all[i].name;
            });
      }
    });
  }
}

/// The same by gathering, with the edge cases of the ring.
TEST(RingAttention, GatheredIsAttention) {
  const auto all = cases();
  const auto expected = expected_outcomes(all);
  as_ranks(3, [&](const DeviceMesh& mesh) {
    for (size_t i = 0; i < all.size(); ++i) {
      compare(
          mesh, {Shard(2)}, {Shard(2)}, all[i], expected[i], [](const Tensor&) {});
    }
  });
}

/// Heads, or samples, in parts along another axis.
TEST(RingAttention, AlongOneOfTwoAxes) {
  const auto all = cases();
  const auto expected = expected_outcomes(all);
  as_mesh({2, 2}, [&](const DeviceMesh& mesh) {
    for (const auto* axis : mesh.axes()) {
      const_cast<Axis*>(axis)->set_passes_keys_on(true);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      for (const auto& places : std::vector<std::vector<Placement>>{
               {Shard(2), Shard(1)}, {Shard(0), Shard(2)}, {Shard(2), Shard(2)},
               {Shard(2), Replicate()}}) {
        compare(mesh, places, places, all[i], expected[i], [](const Tensor&) {});
      }
    }
  });
}

/// Cut elsewhere than queries are, and not cut.
TEST(RingAttention, OfKeysInOtherPlaces) {
  const auto all = cases();
  const auto expected = expected_outcomes(all);
  as_ranks(2, [&](const DeviceMesh& mesh) {
    mesh.axes()[0]->set_passes_keys_on(true);
    for (size_t i = 0; i < all.size(); ++i) {
      for (const auto& place : std::vector<Placement>{Replicate(), Shard(3), Shard(0)}) {
        compare(mesh, {Shard(2)}, {place}, all[i], expected[i], [](const Tensor&) {});
      }
    }
  });
}

/// Parts of other lengths than the usual cut's, some empty, passed on and gathered.
TEST(RingAttention, OfPartsOfAnyLength) {
  const auto all = cases();
  const auto expected = expected_outcomes(all);
  as_ranks(3, [&](const DeviceMesh& mesh) {
    auto& axis = *mesh.axes()[0];
    const auto cut_of = [&](int64_t n, bool early) {
      const int64_t first = early ? n / 4 : n / 2;
      return Shard(2, axis.cut_at({0, first, early ? first : n, n}));
    };
    for (const bool ring : {true, false}) {
      axis.set_passes_keys_on(ring);
      for (size_t i = 0; i < 2 * all.size(); ++i) {
        const auto& one = all[i / 2];
        const bool early = i % 2 == 0;
        compare(
            mesh, {cut_of(one.queries, early)}, {cut_of(one.keys, !early)}, one,
            expected[i / 2], [](const Tensor&) {});
      }
    }
  });
}

/// Of lower precision: the parts are put together in float.
TEST(RingAttention, InBfloat16) {
  const Case one{"bfloat16", 64, 64, true};
  const auto inputs = inputs_of(one);
  const auto expected = written_out(one, inputs[0], inputs[1], inputs[2]).detach();
  as_ranks(4, [&](const DeviceMesh& mesh) {
    mesh.axes()[0]->set_passes_keys_on(true);
    std::vector<Tensor> half;
    for (const auto& input : inputs) {
      half.push_back(distribute_tensor(
          input.detach().to(torch::kBFloat16), mesh, {Shard(2)}));
    }
    const auto out = torch::scaled_dot_product_attention(
        half[0], half[1], half[2], {}, 0.0, true);
    EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
    EXPECT_LE(difference(full_tensor(out).to(torch::kDouble), expected), 0.02);
  });
}

/// LibTorch has second gradients of attention written as products only, of which keys
/// and values are gathered.
TEST(RingAttention, SecondGradients) {
  const Case one{"second gradients", 7, 7, true};
  const auto second = [&](const std::vector<Tensor>& inputs, const Tensor& out) {
    const auto first = torch::autograd::grad(
        {(out * out).sum()}, inputs, {}, std::nullopt, /*create_graph=*/true);
    const auto norm = (first[0] * first[0]).sum() + (first[1] * first[2]).sum();
    return torch::autograd::grad({norm}, inputs);
  };
  const auto plain = inputs_of(one);
  const auto expected = second(plain, written_out(one, plain[0], plain[1], plain[2]));
  const bool flash = at::globalContext().userEnabledFlashSDP();
  at::globalContext().setSDPUseFlash(false);
  as_ranks(3, [&](const DeviceMesh& mesh) {
    mesh.axes()[0]->set_passes_keys_on(true);
    std::vector<Tensor> inputs;
    for (const auto& input : plain) {
      inputs.push_back(
          distribute_tensor(input.detach(), mesh, {Shard(2)}).requires_grad_());
    }
    const auto actual = second(
        inputs, torch::scaled_dot_product_attention(
                    inputs[0], inputs[1], inputs[2], {}, 0.0, true));
    for (size_t i = 0; i < actual.size(); ++i) {
      expect_close("second gradient " + std::to_string(i), actual[i], expected[i]);
    }
  });
  at::globalContext().setSDPUseFlash(flash);
}

/// Each process holds what two have, and what it was given.
TEST(PassedOn, HoldsThePartsOfTwo) {
  as_ranks(4, [&](const DeviceMesh& mesh) {
    auto& axis = *mesh.axes()[0];
    const InsideGuard inside;
    const int64_t rank = axis.rank();
    const std::vector<int64_t> rows{2, 0, 3, 1};
    const auto own = torch::full(
        {2, rows[static_cast<size_t>(rank)], 3}, static_cast<double>(rank));
    PassedOn passed(axis, {own, own + 10}, 1, rows, "a test");
    for (int64_t round = 1; round < 4; ++round) {
      const auto tensors = passed.next();
      const int64_t owner = (rank + 4 - round) % 4;
      ASSERT_EQ(tensors.size(), 2u);
      const std::vector<int64_t> sizes{2, rows[static_cast<size_t>(owner)], 3};
      EXPECT_EQ(tensors[0].sizes(), sizes);
      EXPECT_TRUE(torch::equal(
          tensors[1], torch::full(sizes, static_cast<double>(owner + 10))));
      // One message, of both.
      EXPECT_TRUE(tensors[0].is_alias_of(tensors[1]));
    }
  });
}

} // namespace
} // namespace accel::distributed::test::ring
