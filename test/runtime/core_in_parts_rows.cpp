// Rows that a mask, a list of numbers or an index names: read, and added to.

#include "in_parts.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::expect_equal;
using accel::test::is_cut;
using accel::test::is_sum;
using accel::test::run_and_expect_success;
using torch::Tensor;

/// Rows that a mask names, or a list of numbers.
ACCEL_RANK_FUNCTION(named_rows_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({12, 4}, torch::kDouble);
  const Tensor mask = torch::arange(12).remainder(4).ne(1);
  const Tensor numbers = torch::tensor({7, 2, 9, 2, 11, 0, 4});
  const auto losses = [&](const Tensor& x, const Tensor& by) {
    return x.index({by}).tanh().square().sum();
  };
  for (const Tensor& by : {mask, accelerator.distribute(mask), numbers}) {
    const Tensor x = accelerator.distribute(rows).requires_grad_();
    const Tensor plain = rows.clone().requires_grad_();
    const Tensor whole = accelerator.full(by);
    EXPECT_TRUE(is_cut(x.index({by}), 0));
    losses(x, by).backward();
    losses(plain, whole).backward();
    EXPECT_TRUE(by.is_same(numbers) ? is_sum(x.grad()) : is_cut(x.grad(), 0));
    expect_equal(accelerator, plain.index({whole}), x.index({by}));
    expect_equal(accelerator, plain.grad(), x.grad());
  }
  EXPECT_TRUE(is_cut(rows.index({accelerator.distribute(mask)}), 0));
  // Rows of one process alone.
  const Tensor first = torch::arange(12).lt(2);
  expect_equal(
      accelerator, rows.index({first}), accelerator.distribute(rows).index({first}));
}

/// The gradient of a table that all processes have, whose rows the cut indices of a batch
/// name: each process adds those of its own part. One that a second variable names
/// keeps its place.
ACCEL_RANK_FUNCTION(rows_read_by_cut_indices) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor table = torch::randn({5, 4}, torch::kDouble);
  const Tensor rows = torch::randint(5, {8});
  const Tensor columns = torch::randint(4, {8});
  using Read = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, Read>> reads{
      {"index", [](const Tensor& x, const Tensor& i, const Tensor&) { return x.index({i}); }},
      {"index of two", [](const Tensor& x, const Tensor& i, const Tensor& j) { return x.index({i, j}); }},
      {"index_select", [](const Tensor& x, const Tensor& i, const Tensor&) { return x.index_select(0, i); }},
      {"gather", [](const Tensor& x, const Tensor& i, const Tensor&) { return x.gather(0, i.unsqueeze(1).expand({8, 4})); }},
  };
  for (const auto& [what, read] : reads) {
    int sums = 0;
    const auto gradients = [&, &read = read](const Tensor& i, const Tensor& j) {
      const Tensor leaf = table.clone().requires_grad_();
      const Tensor used = leaf.tanh();
      used.register_hook([&](const Tensor& got) { sums += is_sum(got) ? 1 : 0; });
      const Tensor first = torch::autograd::grad(
          {read(used, i, j).square().sum()}, {leaf}, {}, true, true)[0];
      first.square().sum().backward();
      return std::pair(first, leaf.grad());
    };
    const auto plain = gradients(rows, columns);
    const auto got =
        gradients(accelerator.distribute(rows), accelerator.distribute(columns));
    EXPECT_GT(sums, 0) << what;
    expect_equal(accelerator, plain.first, got.first);
    expect_equal(accelerator, plain.second, got.second);
  }
}

/// `torch::zeros(…).index_add_(…)`, as graphs sum up what their nodes get: a part of a sum,
/// unless somebody else has the tensor.
ACCEL_RANK_FUNCTION(rows_added_in_place) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor values = torch::randn({8, 3}, torch::kDouble);
  const Tensor groups = torch::randint(4, {8});
  using Add = std::function<void(Tensor&, const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, Add>> adds{
      {"index_add_", [](Tensor& to, const Tensor& i, const Tensor& x) { to.index_add_(0, i, x); }},
      {"index_put_", [](Tensor& to, const Tensor& i, const Tensor& x) { to.index_put_({i}, x, true); }},
      {"scatter_add_", [](Tensor& to, const Tensor& i, const Tensor& x) { to.scatter_add_(0, i.unsqueeze(1).expand({8, 3}), x); }},
  };
  for (const auto& [what, add] : adds) {
    for (const bool like_rows : {false, true}) {
      bool sum = false;
      const auto sums = [&, &add = add](const Tensor& i, const Tensor& rows) {
        Tensor x = rows.clone().requires_grad_();
        const Tensor like = x.slice(1, 0, 3);
        Tensor to = like_rows ? torch::zeros_like(like)
                              : torch::zeros({4, 3}, torch::kDouble);
        Tensor named = to.clone();
        const Tensor name = named;
        Tensor shared = to.clone();
        const Tensor detached = shared.detach();
        const Tensor viewed = to.clone();
        Tensor view = viewed.view({-1, 3});
        add(to, i, x.tanh());
        sum = is_sum(to);
        add(named, i, x.tanh());
        add(shared, i, x.tanh());
        add(view, i, x.tanh());
        EXPECT_TRUE(torch::equal(accelerator.full(shared), accelerator.full(detached)));
        EXPECT_TRUE(torch::equal(accelerator.full(name), accelerator.full(named)));
        EXPECT_TRUE(torch::equal(accelerator.full(view), accelerator.full(viewed)));
        (to.square().sum() + named.sum() + view.cos().sum()).backward();
        return std::vector<Tensor>{to, named, view, x.grad()};
      };
      const auto plain = sums(groups, values);
      const auto got =
          sums(accelerator.distribute(groups), accelerator.distribute(values));
      EXPECT_TRUE(sum) << what << like_rows;
      EXPECT_TRUE(is_cut(got[3], 0)) << what << like_rows;
      for (size_t k = 0; k < plain.size(); ++k) {
        expect_equal(accelerator, plain[k], got[k]);
      }
    }
  }
}

/// The places of entries, and what is looked up there.
ACCEL_RANK_FUNCTION(places_of_entries) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({9, 4}, torch::kDouble);
  const Tensor table = torch::randn({9, 4}, torch::kDouble);
  const Tensor x = accelerator.distribute(rows);
  const Tensor places = x.gt(0).nonzero();
  EXPECT_TRUE(is_cut(places, 0));
  expect_equal(accelerator, rows.gt(0).nonzero(), places);
  const auto both = torch::where(x.gt(0));
  const Tensor found = table.index({both[0], both[1]});
  EXPECT_TRUE(is_cut(found, 0));
  expect_equal(accelerator, table.masked_select(rows.gt(0)), found);
  // One process has none.
  const Tensor first = torch::arange(9).lt(2);
  expect_equal(
      accelerator, first.nonzero(), accelerator.distribute(first).nonzero());
}

TEST(InParts, NamedRows) {
  run_and_expect_success("named_rows_in_parts", 2);
  run_and_expect_success("named_rows_in_parts", 3);
}

TEST(InParts, RowsReadByCutIndices) {
  run_and_expect_success("rows_read_by_cut_indices", 2);
  run_and_expect_success("rows_read_by_cut_indices", 3);
}

TEST(InParts, RowsAddedInPlace) {
  run_and_expect_success("rows_added_in_place", 2);
  run_and_expect_success("rows_added_in_place", 3);
}

TEST(InParts, PlacesOfEntries) {
  run_and_expect_success("places_of_entries", 2);
  run_and_expect_success("places_of_entries", 3);
}
