// What comes in as a batch and what is read of it: `distribute`, `full` and
// `gather_for_metrics` of whatever programs keep tensors in.

#include "expectations.h"

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <tuple>
#include <utility>
#include <variant>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;

namespace {

bool lies_cut(const torch::Tensor& tensor) {
  return accel::distributed::is_distributed(tensor);
}

} // namespace

ACCEL_RANK_FUNCTION(distributes_what_can_be_cut) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const bool several = accelerator.use_distributed();
  const auto x = torch::arange(24, torch::kDouble).reshape({6, 4});
  // Nothing to cut.
  EXPECT_FALSE(accelerator.distribute(torch::Tensor()).defined());
  EXPECT_FALSE(accelerator.full(torch::Tensor()).defined());
  const auto scalar = torch::full({}, 3.0);
  EXPECT_TRUE(accelerator.distribute(scalar).is_same(scalar));
  const auto row = x.narrow(0, 0, 1);
  EXPECT_TRUE(accelerator.distribute(row).is_same(row));
  const auto sparse = x.to_sparse();
  EXPECT_TRUE(accelerator.distribute(sparse).is_same(sparse));

  const auto cut = accelerator.distribute(x);
  EXPECT_EQ(lies_cut(cut), several);
  EXPECT_EQ(cut.is_same(x), !several);
  EXPECT_TRUE(torch::equal(accelerator.full(cut), x));
  // A call too many leaves everything where it lies.
  EXPECT_TRUE(accelerator.distribute(cut).is_same(cut));
  const auto columns = accelerator.distribute(x, 1);
  EXPECT_EQ(lies_cut(columns), several);
  EXPECT_TRUE(accelerator.distribute(columns).is_same(columns));
  EXPECT_TRUE(torch::equal(accelerator.full(columns), x));
  const auto sum = cut.sum();
  EXPECT_TRUE(accelerator.distribute(sum).is_same(sum));
  // With the dimension it is cut anew.
  EXPECT_TRUE(torch::equal(
      accelerator.full(accelerator.distribute(columns, 0)), x));
  EXPECT_TRUE(accel::test::contains(
      accel::test::error_of([&] { accelerator.distribute(scalar, 0); }),
      "cannot cut"));
}

ACCEL_RANK_FUNCTION(distributes_containers) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const bool several = accelerator.use_distributed();
  const auto x = torch::arange(24, torch::kDouble).reshape({6, 4});
  const auto y = torch::arange(6);
  const std::vector<torch::Tensor> vector{x, y, torch::Tensor(), torch::ones({})};
  const auto cut_vector = accelerator.distribute(vector);
  ASSERT_EQ(cut_vector.size(), 4u);
  EXPECT_EQ(lies_cut(cut_vector[0]), several);
  EXPECT_EQ(lies_cut(cut_vector[1]), several);
  EXPECT_FALSE(cut_vector[2].defined());
  EXPECT_TRUE(cut_vector[3].is_same(vector[3]));
  const auto whole = accelerator.full(cut_vector);
  EXPECT_TRUE(torch::equal(whole[0], x) && torch::equal(whole[1], y));
  EXPECT_FALSE(lies_cut(whole[0]));

  const auto [a, b] = accelerator.distribute(std::make_pair(x, y));
  EXPECT_EQ(lies_cut(a) && lies_cut(b), several);
  const auto [p, q] = accelerator.full(std::make_pair(a, b));
  EXPECT_TRUE(torch::equal(p, x) && torch::equal(q, y));

  torch::Tensor r, s, t;
  std::tie(r, s, t) = accelerator.distribute(std::make_tuple(x, y, x));
  EXPECT_EQ(lies_cut(r) && lies_cut(s) && lies_cut(t), several);
  std::tie(r, s, t) = accelerator.full(std::make_tuple(r, s, t));
  EXPECT_TRUE(torch::equal(r, x) && torch::equal(s, y) && torch::equal(t, x));

  const auto example = accelerator.distribute(torch::data::Example<>(x, y));
  EXPECT_EQ(lies_cut(example.data) && lies_cut(example.target), several);

  struct Pair {
    torch::Tensor first, second;
  };
  std::variant<torch::Tensor, Pair> any = accelerator.distribute(
      std::variant<torch::Tensor, Pair>(Pair{x, y}));
  ASSERT_EQ(any.index(), 1u);
  EXPECT_EQ(lies_cut(std::get<Pair>(any).second), several);
  any = accelerator.full(any);
  EXPECT_TRUE(torch::equal(std::get<Pair>(any).first, x));
  any = accelerator.distribute(std::variant<torch::Tensor, Pair>(x));
  EXPECT_EQ(lies_cut(std::get<torch::Tensor>(any)), several);
}

ACCEL_RANK_FUNCTION(gathers_variables) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto x = torch::arange(24, torch::kDouble).reshape({6, 4});
  const auto labels = torch::arange(6);
  const torch::Tensor cut = accelerator.distribute(x);
  const torch::Tensor& reference = cut;
  EXPECT_TRUE(torch::equal(accelerator.gather_for_metrics(reference), x));
  // Those that are whole are themselves.
  EXPECT_TRUE(accelerator.gather_for_metrics(labels).is_same(labels));
  EXPECT_FALSE(accelerator.gather_for_metrics(torch::Tensor()).defined());

  auto output = cut * 2;
  auto target = labels;
  torch::Tensor mask;
  std::tie(output, target, mask) =
      accelerator.gather_for_metrics(output, target, mask);
  EXPECT_FALSE(lies_cut(output));
  EXPECT_TRUE(torch::equal(output, x * 2));
  EXPECT_TRUE(target.is_same(labels));
  EXPECT_FALSE(mask.defined());
  // Again: nothing changes, not even a gradient's way.
  const auto weights = torch::ones({4}, torch::kDouble).requires_grad_();
  auto loss_rows = torch::mv(cut, weights);
  std::tie(loss_rows, target) =
      accelerator.gather_for_metrics(loss_rows, target);
  std::tie(loss_rows, target) =
      accelerator.gather_for_metrics(loss_rows, target);
  EXPECT_TRUE(torch::equal(loss_rows, x.sum(1)));
  loss_rows.sum().backward();
  EXPECT_TRUE(torch::equal(accelerator.full(weights.grad()), x.sum(0)));
}

ACCEL_RANK_FUNCTION(shares_whole_memory) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto x = torch::arange(24, torch::kDouble).reshape({6, 4});
  EXPECT_TRUE(accelerator.full_(x).is_same(x));
  EXPECT_FALSE(accelerator.full_(torch::Tensor()).defined());
  // Cut by rows, by columns, and a sum.
  const auto cut = accelerator.distribute(x);
  for (const auto& tensor :
       {cut * 1, accelerator.distribute(x, 1) * 1, cut.t().matmul(cut)}) {
    const auto before = accelerator.full(tensor).clone();
    const auto view = tensor.view({-1});
    const auto row = tensor[1];
    const auto detached = tensor.detach();
    const auto copy = tensor + 0;
    auto whole = accelerator.full_(detached);
    ASSERT_FALSE(lies_cut(whole));
    EXPECT_TRUE(torch::equal(whole, before));
    whole.data_ptr<double>()[5] = -7;
    auto after = before.clone();
    after.view({-1})[5] = -7;
    EXPECT_TRUE(torch::equal(accelerator.full(tensor), after));
    EXPECT_TRUE(torch::equal(accelerator.full(view), after.view({-1})));
    EXPECT_TRUE(torch::equal(accelerator.full(row), after[1]));
    EXPECT_TRUE(torch::equal(accelerator.full(tensor.sum()), after.sum()));
    EXPECT_TRUE(torch::equal(accelerator.full(copy), before));
    // And the other way round.
    view.add_(1);
    EXPECT_TRUE(torch::equal(whole, after + 1));
  }
  const auto weights = torch::ones({4}, torch::kDouble).requires_grad_();
  const auto scores = torch::mv(cut, weights);
  accelerator.full_(scores).sum().backward();
  EXPECT_TRUE(torch::equal(accelerator.full(weights.grad()), x.sum(0)));
}

TEST(Batches, AreWrittenThroughTheirMemory) {
  accel::test::run_all("shares_whole_memory");
}

/// On any number of processes the program's memory holds what one device's would.
ACCEL_RANK_FUNCTION(writes_to_who_shares) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const bool several = accelerator.use_distributed();
  const auto numbers = [] {
    return torch::arange(36, torch::kDouble).reshape({12, 3});
  };

  // Rows of a data set, written whole, and a column of them.
  auto data = numbers(), expected = numbers();
  auto rows = accelerator.distribute(data.narrow(0, 2, 8));
  EXPECT_EQ(lies_cut(rows), several);
  rows.sub_(rows.mean(0));
  rows.select(1, 1).mul_(2);
  auto same = expected.narrow(0, 2, 8);
  same.sub_(same.mean(0));
  same.select(1, 1).mul_(2);
  EXPECT_TRUE(torch::allclose(data, expected, 0, 1e-12));
  EXPECT_TRUE(torch::allclose(accelerator.full(rows), same, 0, 1e-12));

  // A tensor that the program keeps, and whose rows have been looked at.
  data = numbers(), expected = numbers();
  auto all = accelerator.distribute(data);
  const auto first = all[0];
  all.add_(1);
  EXPECT_TRUE(torch::equal(data, expected + 1));
  EXPECT_TRUE(torch::equal(accelerator.full(first), expected[0] + 1));

  // Columns: memory with gaps.
  data = numbers(), expected = numbers();
  auto columns = accelerator.distribute(data.narrow(1, 0, 2));
  columns.mul_(2);
  expected.narrow(1, 0, 2).mul_(2);
  EXPECT_TRUE(torch::equal(data, expected));
  EXPECT_TRUE(torch::equal(
      accelerator.full(columns.reshape({-1})),
      expected.narrow(1, 0, 2).reshape({-1})));

  // Memory that nobody else has stays in parts.
  auto own = accelerator.distribute(numbers());
  own.mul_(2);
  auto again = numbers();
  again = accelerator.distribute(again);
  again.select(1, 0).zero_();
  again.narrow(1, 1, 2).select(1, 1).zero_();
  EXPECT_EQ(lies_cut(own), several);
  for (const auto& tensor : {own, again}) {
    EXPECT_EQ(
        several,
        lies_cut(tensor) &&
            accel::distributed::placements(tensor)[0].is_shard());
  }
  EXPECT_TRUE(torch::equal(accelerator.full(own), numbers() * 2));
}

TEST(Batches, AreWrittenWhereOthersShareTheirMemory) {
  accel::test::run_all("writes_to_who_shares");
}

ACCEL_RANK_FUNCTION(lies_as_what_it_was_cut_from) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  auto data = torch::arange(96, torch::kDouble).reshape({12, 8});
  const auto rows = data.narrow(0, 2, 8).narrow(1, 1, 4);
  const auto cut = accelerator.distribute(rows);
  EXPECT_EQ(cut.strides(), rows.strides());
  EXPECT_EQ(cut.storage_offset(), rows.storage_offset());
  EXPECT_FALSE(cut.is_contiguous());
  EXPECT_EQ(cut[1].storage_offset(), rows[1].storage_offset());
  EXPECT_EQ(
      cut.slice(1, 1, 3).storage_offset(), rows.slice(1, 1, 3).storage_offset());
  EXPECT_TRUE((cut * 2).is_contiguous());
  // A view with gaps is copied, and what is written into the copy is not the view's.
  cut.reshape({-1}).zero_();
  EXPECT_TRUE(torch::equal(accelerator.full(cut), rows));
  // The program writes into its memory.
  data.data_ptr<double>()[2 * 8 + 1] = 77;
  data.data_ptr<double>()[9 * 8 + 4] = -77;
  EXPECT_TRUE(torch::equal(accelerator.full(cut * 1), rows));
  EXPECT_EQ(rows[0][0].item<double>(), 77);

  // Steps first: the samples of a process have gaps in the program's memory.
  auto memory = torch::arange(48, torch::kDouble);
  auto series = memory.view({3, 8, 2});
  const auto by_steps = accelerator.distribute(series, 1);
  const auto flat = by_steps.view({24, 2});
  EXPECT_TRUE(torch::equal(accelerator.full(flat), series.view({24, 2})));
  memory.data_ptr<double>()[5] = 50;
  EXPECT_TRUE(torch::equal(accelerator.full(by_steps.sum(0)), series.sum(0)));
  flat.mul_(2);
  EXPECT_EQ(memory[5].item<double>(), 100);
  EXPECT_TRUE(torch::equal(accelerator.full(by_steps), series));
}

TEST(Batches, LieAsWhatTheyWereCutFrom) {
  accel::test::run_all("lies_as_what_it_was_cut_from");
}

ACCEL_RANK_FUNCTION(distributes_one_tensor_once) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  auto x = torch::arange(24, torch::kDouble).reshape({6, 4});
  auto first = accelerator.distribute(x);
  EXPECT_TRUE(accelerator.distribute(x).is_same(first));
  EXPECT_FALSE(accelerator.distribute(x.view({6, 4})).is_same(first));
  // What is written into the one is written into the other.
  first.mul_(2);
  EXPECT_TRUE(torch::equal(accelerator.full(accelerator.distribute(x)), x));
  // Another value: another tensor.
  first = accelerator.distribute(x);
  x.add_(1);
  const auto second = accelerator.distribute(x);
  EXPECT_EQ(second.is_same(first), !accelerator.use_distributed());
  EXPECT_TRUE(torch::equal(accelerator.full(second), x));
  // The same tensor with other memory.
  const auto third = accelerator.distribute(x);
  x.set_data(torch::ones_like(x));
  EXPECT_TRUE(torch::equal(accelerator.full(accelerator.distribute(x)), x));
  EXPECT_TRUE(torch::equal(accelerator.full(third), accelerator.full(second)));
  // A leaf of the program's own.
  const auto base = torch::ones({6}, torch::kDouble);
  const auto one = accelerator.distribute(base).requires_grad_();
  EXPECT_EQ(
      accelerator.distribute(base).is_same(one), !accelerator.use_distributed());
  // Nobody keeps what the program has dropped.
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>
      dropped(accelerator.distribute(x.clone()).getIntrusivePtr());
  EXPECT_TRUE(dropped.expired());
  // Leaves are given their gradients from each place.
  x.requires_grad_();
  (accelerator.distribute(x) * accelerator.distribute(x)).sum().backward();
  EXPECT_TRUE(torch::allclose(
      accelerator.full(x.grad()), 2 * x.detach(), 0, 1e-12));
}

TEST(Batches, OfOneTensorAreOneTensor) {
  accel::test::run_all("distributes_one_tensor_once");
}

TEST(Batches, AreCutWhereTheyCanBe) {
  accel::test::run_all("distributes_what_can_be_cut");
}

TEST(Batches, ComeInContainers) {
  accel::test::run_all("distributes_containers");
}

TEST(Batches, AreReadThroughVariables) {
  accel::test::run_all("gathers_variables");
}
