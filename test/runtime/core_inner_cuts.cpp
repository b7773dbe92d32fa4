// Sequence-first layouts, [time, batch, features], are cut along dimension 1:
// layers keep the cut, and results and gradients are the plain ones.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distributed::placements;
using accel::distributed::Shard;
using accel::test::run_and_expect_success;
using torch::Tensor;

ACCEL_RANK_FUNCTION(inner_cuts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const auto options = torch::dtype(torch::kDouble);
  torch::nn::Linear linear(4, 3);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true));
  torch::nn::GRU batch_first(torch::nn::GRUOptions(4, 3).batch_first(true));
  torch::nn::RNN rnn(4, 3);
  torch::nn::MultiheadAttention attention(4, 2);
  const Tensor matrix = torch::randn({4, 5}, options);
  const Tensor vector = torch::randn({4}, options);
  std::vector<Tensor> trained;
  const std::vector<torch::nn::Module*> models{
      linear.get(), lstm.get(), batch_first.get(), rnn.get(), attention.get()};
  for (auto* const model : models) {
    model->to(torch::kDouble);
    for (auto& parameter : model->parameters()) {
      trained.push_back(parameter);
    }
  }
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>>
      layers{
          {"linear", [&](const Tensor& x) { return linear->forward(x); }},
          {"linear of five dimensions",
           [&](const Tensor& x) {
             return linear->forward(x.unsqueeze(2).unsqueeze(0)).squeeze(3).squeeze(0);
           }},
          {"lstm", [&](const Tensor& x) { return std::get<0>(lstm->forward(x)); }},
          {"gru, batch first",
           [&](const Tensor& x) {
             return std::get<0>(batch_first->forward(x.transpose(0, 1))).transpose(0, 1);
           }},
          {"rnn",
           [&](const Tensor& x) {
             return std::get<0>(
                 rnn->forward(x, torch::zeros({1, 7, 3}, options)));
           }},
          {"attention",
           [&](const Tensor& x) { return std::get<0>(attention->forward(x, x, x)); }},
          {"matmul", [&](const Tensor& x) { return x.matmul(matrix); }},
          {"times a vector",
           [&](const Tensor& x) { return x.matmul(vector); }},
      };
  const Tensor plain = torch::randn({5, 7, 4}, options);
  for (const auto& [name, layer] : layers) {
    std::vector<std::vector<Tensor>> results;
    // A recurrent layer cuts the samples where it is given a cut of the steps.
    std::vector<int> cuts{-1, 1};
    if (name == "lstm" || name == "gru, batch first" || name == "rnn") {
      cuts.push_back(0);
    }
    for (const int cut : cuts) {
      Tensor x = plain.clone().requires_grad_();
      const Tensor y = layer(cut >= 0 ? accelerator.distribute(x, cut) : x);
      if (cut >= 0) {
        EXPECT_TRUE(
            accel::distributed::is_distributed(y) &&
            placements(y).at(0) == Shard(1))
            << name;
        EXPECT_TRUE(y.is_contiguous() == layer(x).is_contiguous()) << name;
      }
      for (auto& parameter : trained) {
        parameter.mutable_grad() = Tensor();
      }
      y.sin().sum().backward();
      std::vector<Tensor> found{accelerator.full(y).detach(), accelerator.full(x.grad())};
      for (const auto& parameter : trained) {
        if (parameter.grad().defined()) {
          found.push_back(accelerator.full(parameter.grad()).clone());
        }
      }
      results.push_back(found);
    }
    for (size_t run = 1; run < results.size(); ++run) {
      ASSERT_EQ(results[0].size(), results[run].size()) << name;
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(torch::allclose(results[0][i], results[run][i], 1e-12, 1e-12))
            << name << ", cut of dimension " << cuts[run] << ", result " << i;
      }
    }
  }
}

TEST(InnerCuts, LayersKeepThem) {
  run_and_expect_success("inner_cuts", 2);
  run_and_expect_success("inner_cuts", 3);
}

// A sequence model's loss is one of rows: [time, batch, classes] becomes
// [time * batch, classes]. Its rows are cut in blocks, one for each time, and no
// operator makes them whole.
ACCEL_RANK_FUNCTION(rows_of_sequences) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const auto options = torch::dtype(torch::kDouble);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3));
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({3}));
  torch::nn::Linear classes(3, 6);
  lstm->to(torch::kDouble);
  norm->to(torch::kDouble);
  classes->to(torch::kDouble);
  std::vector<Tensor> trained = lstm->parameters();
  for (const auto& parameter : norm->parameters()) {
    trained.push_back(parameter);
  }
  for (const auto& parameter : classes->parameters()) {
    trained.push_back(parameter);
  }
  const Tensor plain = torch::randn({5, 7, 4}, options);
  const Tensor plain_target = torch::randint(6, {5, 7});
  const auto in_blocks = [](const Tensor& tensor) {
    return accel::distributed::is_distributed(tensor) &&
        placements(tensor).at(0).is_shard(0) &&
        placements(tensor).at(0).in_blocks();
  };
  std::vector<std::vector<Tensor>> results;
  for (const bool cut : {false, true}) {
    const Tensor x = cut ? accelerator.distribute(plain, 1) : plain;
    const Tensor target = cut ? accelerator.distribute(plain_target, 1) : plain_target;
    for (auto& parameter : trained) {
      parameter.mutable_grad() = Tensor();
    }
    const Tensor states = std::get<0>(lstm->forward(x));
    const Tensor rows = states.reshape({-1, 3});
    const Tensor normed = norm->forward(rows);
    Tensor logits = classes->forward(normed);
    const Tensor loss =
        torch::nn::functional::cross_entropy(logits, target.reshape(-1));
    const Tensor right = logits.argmax(1).eq(target.view(-1)).sum();
    Tensor of_logits;
    Tensor of_states;
    logits.register_hook([&](const Tensor& gradient) { of_logits = gradient; });
    states.register_hook([&](const Tensor& gradient) { of_states = gradient; });
    loss.backward();
    if (cut) {
      EXPECT_TRUE(in_blocks(rows) && in_blocks(normed) && in_blocks(logits) &&
                  in_blocks(of_logits));
      EXPECT_TRUE(
          accel::distributed::is_distributed(of_states) &&
          placements(of_states).at(0) == Shard(1));
      // Back to where each row's time and sample are told apart.
      EXPECT_TRUE(placements(logits.view({5, 7, 6})).at(0) == Shard(1));
      // What does not know blocks gets ranges, and gives the same.
      EXPECT_TRUE(torch::allclose(
          accelerator.full(logits.cumsum(0)), accelerator.full(logits).cumsum(0),
          1e-12, 1e-12));
    }
    std::vector<Tensor> found{
        accelerator.full(loss).detach(), accelerator.full(right),
        accelerator.full(logits).detach()};
    for (const auto& parameter : trained) {
      found.push_back(accelerator.full(parameter.grad()).clone());
    }
    // A write through the rows is seen in the sequence.
    {
      const torch::NoGradGuard no_grad;
      Tensor sequence = x.clone();
      Tensor flat = sequence.view({-1, 4});
      flat.mul_(2);
      flat.slice(0, 3, 20).add_(1);
      found.push_back(accelerator.full(sequence));
    }
    results.push_back(found);
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(torch::allclose(
        results[0][i].to(torch::kDouble), results[1][i].to(torch::kDouble), 1e-12, 1e-12))
        << "result " << i;
  }
}

TEST(InnerCuts, RowsOfSequencesStayInParts) {
  run_and_expect_success("rows_of_sequences", 2);
  run_and_expect_success("rows_of_sequences", 3);
}

// Characters and labels become vectors of their classes: cut as they are.
ACCEL_RANK_FUNCTION(one_hot_vectors) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const Tensor whole =
      torch::tensor({{0, 4, 2}, {3, 1, 1}, {2, 2, 0}, {1, 0, 3}}, torch::kLong);
  for (const int64_t dim : {0, 1}) {
    for (const int64_t classes : {-1, 5, 9}) {
      const Tensor expected = torch::one_hot(whole, classes);
      const Tensor found = torch::one_hot(accelerator.distribute(whole, dim), classes);
      ASSERT_TRUE(accel::distributed::is_distributed(found));
      EXPECT_TRUE(placements(found).at(0) == Shard(dim)) << dim;
      EXPECT_EQ(found.scalar_type(), torch::kLong);
      EXPECT_TRUE(found.is_contiguous());
      EXPECT_TRUE(torch::equal(accelerator.full(found), expected))
          << dim << ", " << classes;
    }
    // One process alone has the value that is wrong; all say so.
    EXPECT_THROW(torch::one_hot(accelerator.distribute(whole, dim), 4), c10::Error);
    EXPECT_THROW(
        torch::one_hot(accelerator.distribute(whole - 1, dim), 5), c10::Error);
  }
}

TEST(InnerCuts, OneHotVectorsKeepThem) {
  run_and_expect_success("one_hot_vectors", 2);
  run_and_expect_success("one_hot_vectors", 3);
}

// Pooling over points, the best action of a state, beams: the gradient of what is
// selected lies as the input does, along the rows and along dimensions between.
ACCEL_RANK_FUNCTION(gradients_of_selections) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const Tensor whole = torch::arange(60, torch::kDouble)
                           .mul(7)
                           .remainder(61)
                           .view({5, 4, 3});
  using Select = std::function<Tensor(const Tensor&)>;
  const std::vector<Select> selections{
      [](const Tensor& x) { return std::get<0>(x.max(2)); },
      [](const Tensor& x) { return std::get<0>(x.min(-1, /*keepdim=*/true)); },
      [](const Tensor& x) { return std::get<0>(x.topk(2, 2)); },
      [](const Tensor& x) { return std::get<0>(x.sort(2)); },
      [](const Tensor& x) { return std::get<0>(x.max(1)); }};
  for (const int64_t dim : {0, 1}) {
    for (const auto& select : selections) {
      const auto gradient = [&](const Tensor& x) {
        const Tensor leaf = x.detach().requires_grad_();
        const Tensor selected = select(leaf);
        return torch::autograd::grad({(selected * selected).sum()}, {leaf})[0];
      };
      const Tensor found = gradient(accelerator.distribute(whole, dim));
      EXPECT_TRUE(torch::equal(accelerator.full(found), gradient(whole))) << dim;
      if (&select != &selections.back() || dim == 0) {
        ASSERT_TRUE(accel::distributed::is_distributed(found)) << dim;
        EXPECT_TRUE(placements(found).at(0) == Shard(dim)) << dim;
      }
    }
  }
}

TEST(InnerCuts, GradientsOfSelectionsKeepThem) {
  run_and_expect_success("gradients_of_selections", 2);
  run_and_expect_success("gradients_of_selections", 3);
}

// Rows in another order, and of each row the element that another tensor names: both
// are rows, and so are their gradients.
ACCEL_RANK_FUNCTION(rows_by_index) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const Tensor whole = torch::arange(35, torch::kDouble).sin().view({7, 5});
  const Tensor order = torch::tensor({4, 2, 6, 0, 1, 3, 5, 2}, torch::kLong);
  const Tensor rows = torch::arange(7);
  const Tensor column = torch::tensor({1, 0, 4, 4, 2, 3, 1}, torch::kLong);
  const auto labels = accelerator.distribute(column);
  const auto check = [&](const Tensor& found, const Tensor& expected) {
    ASSERT_TRUE(accel::distributed::is_distributed(found));
    EXPECT_TRUE(placements(found).at(0) == Shard(0));
    EXPECT_TRUE(torch::equal(accelerator.full(found), expected));
  };
  const auto parts = accelerator.distribute(whole);
  check(parts.index_select(0, order), whole.index_select(0, order));
  using torch::indexing::None;
  using torch::indexing::Slice;
  check(parts.index({rows, column}), whole.index({rows, column}));
  check(parts.index({rows, labels}), whole.index({rows, column}));
  const Tensor two = torch::stack({column, column.flip(0)}, 1);
  check(
      parts.index({rows.unsqueeze(1), two}),
      whole.index({rows.unsqueeze(1), two}));
  check(
      parts.index_put({rows, labels}, torch::ones({7}, torch::kDouble)),
      whole.index_put({rows, column}, torch::ones({7}, torch::kDouble)));
  check(
      parts.index_put({rows.unsqueeze(1), two}, parts.slice(1, 0, 2), true),
      whole.index_put({rows.unsqueeze(1), two}, whole.slice(1, 0, 2), true));
  // In another order no process has the rows that it needs.
  const Tensor other = rows.roll(1);
  EXPECT_TRUE(torch::equal(
      accelerator.full(parts.index({other, column})),
      whole.index({other, column})));

  const auto gradient = [&](const Tensor& x, const Tensor& named) {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor taken = leaf.index({rows, named});
    const Tensor moved = leaf.index_select(0, order);
    return torch::autograd::grad(
        {(taken * taken).sum() + moved.cos().sum()}, {leaf})[0];
  };
  const Tensor found = gradient(parts, labels);
  EXPECT_TRUE(
      torch::allclose(accelerator.full(found), gradient(whole, column), 0, 1e-14));
}

TEST(InnerCuts, RowsByIndexAreRows) {
  run_and_expect_success("rows_by_index", 2);
  run_and_expect_success("rows_by_index", 3);
}

// Each process computes some of the packed sequences; states and what is unpacked lie
// as the samples did before, and so do their gradients.
ACCEL_RANK_FUNCTION(packed_sequences) {
  namespace rnn = torch::nn::utils::rnn;
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const Tensor whole = torch::arange(90, torch::kDouble).sin().view({5, 6, 3});
  for (const bool sorted : {false, true}) {
    const Tensor lengths = sorted ? torch::tensor({6, 5, 4, 4, 2}, torch::kLong)
                                  : torch::tensor({3, 2, 6, 4, 5}, torch::kLong);
    torch::manual_seed(3);
    torch::nn::LSTM lstm(
        torch::nn::LSTMOptions(3, 4).bidirectional(true).batch_first(true));
    torch::nn::GRU gru(torch::nn::GRUOptions(8, 4).batch_first(true));
    lstm->to(torch::kDouble);
    gru->to(torch::kDouble);
    struct Results {
      Tensor padded, state, last;
      std::vector<Tensor> gradients;
    };
    const auto run = [&](const Tensor& x, const Tensor& n) {
      const Tensor leaf = x.detach().requires_grad_();
      const auto packed = rnn::pack_padded_sequence(leaf, n, true, sorted);
      const auto [output, states] = lstm->forward_with_packed_input(packed);
      const auto padded = std::get<0>(rnn::pad_packed_sequence(output, true));
      const auto again = rnn::pack_padded_sequence(padded, n, true, sorted);
      const auto last = std::get<1>(gru->forward_with_packed_input(again));
      const auto loss = padded.square().sum() + std::get<1>(states).cos().sum() +
          last.sin().sum();
      auto parameters = lstm->parameters();
      parameters.push_back(leaf);
      return Results{
          padded, std::get<0>(states), last,
          torch::autograd::grad({loss}, parameters)};
    };
    const auto expected = run(whole, lengths);
    const auto found =
        run(accelerator.distribute(whole), accelerator.distribute(lengths));
    const auto check = [&](const Tensor& part, const Tensor& all, int64_t dim) {
      ASSERT_TRUE(accel::distributed::is_distributed(part));
      EXPECT_TRUE(placements(part).at(0) == Shard(dim));
      EXPECT_TRUE(torch::allclose(accelerator.full(part), all, 0, 1e-13));
    };
    check(found.padded, expected.padded, 0);
    check(found.state, expected.state, 1);
    check(found.last, expected.last, 1);
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_TRUE(torch::allclose(
          accelerator.full(found.gradients[i]), expected.gradients[i], 0, 1e-12))
          << i;
    }
    EXPECT_TRUE(placements(found.gradients[0]).at(0).is_sum());
    // A state of the step before, in parts, is taken as it comes.
    const auto packed = rnn::pack_padded_sequence(
        accelerator.distribute(whole), lengths, true, sorted);
    const auto next = lstm->forward_with_packed_input(
        packed, std::make_tuple(found.state, found.state));
    const auto same = lstm->forward_with_packed_input(
        rnn::pack_padded_sequence(whole, lengths, true, sorted),
        std::make_tuple(expected.state, expected.state));
    check(
        std::get<0>(std::get<1>(next)), std::get<0>(std::get<1>(same)), 1);
  }
}

// What cannot be shared out is computed whole: fewer sequences than processes, and
// layers with random numbers between them. Gradients have gradients in either case.
ACCEL_RANK_FUNCTION(packed_sequences_of_all_kinds) {
  namespace rnn = torch::nn::utils::rnn;
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  struct Kind {
    int64_t samples;
    double dropout;
    bool parts;
  };
  for (const auto& kind : {Kind{4, 0, true}, Kind{2, 0, false}, Kind{4, 0.5, false}}) {
    const Tensor whole = torch::arange(kind.samples * 15, torch::kDouble)
                             .sin()
                             .view({5, kind.samples, 3});
    const Tensor lengths = 5 - torch::arange(kind.samples);
    torch::manual_seed(3);
    torch::nn::GRU gru(torch::nn::GRUOptions(3, 4).num_layers(2).dropout(kind.dropout));
    gru->to(torch::kDouble);
    bool in_parts = false;
    const auto run = [&](const Tensor& x) {
      torch::manual_seed(8);
      const Tensor leaf = x.detach().requires_grad_();
      const auto [output, state] =
          gru->forward_with_packed_input(rnn::pack_padded_sequence(leaf, lengths));
      const auto once = torch::autograd::grad(
          {std::get<0>(rnn::pad_packed_sequence(output)).sin().sum() +
           state.square().sum()},
          {leaf, gru->parameters()[0]}, {}, {}, /*create_graph=*/true);
      // Before its square needs it whole.
      in_parts = accel::distributed::is_distributed(once[1]) &&
          placements(once[1]).at(0).is_sum();
      auto twice = torch::autograd::grad(
          {once[0].square().sum() + once[1].square().sum()},
          {leaf, gru->parameters()[1]});
      twice.insert(twice.end(), once.begin(), once.end());
      return twice;
    };
    const auto expected = run(whole);
    const auto found =
        run(accelerator.distribute(whole, 1));
    EXPECT_EQ(in_parts, kind.parts);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(
          accelerator.full(found[i]), expected[i], 0, 1e-11))
          << i << " of " << kind.samples << ", " << kind.dropout;
    }
  }
}

// On a mesh a process may have one sample, which is not cut again, where others cut
// theirs.
ACCEL_RANK_FUNCTION(packed_sequences_of_a_mesh) {
  namespace rnn = torch::nn::utils::rnn;
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true).parallelism_config(
          accel::ParallelismConfig().dp_replicate_size(2).dp_shard_size(2)));
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4).batch_first(true));
  gru->to(torch::kDouble);
  for (auto& parameter : gru->parameters()) {
    torch::NoGradGuard no_grad;
    parameter.fill_(0.3);
  }
  for (const int64_t samples : {1, 2, 3, 5, 8}) {
    const Tensor whole =
        torch::arange(samples * 15, torch::kDouble).sin().view({samples, 5, 3});
    const auto run = [&](const Tensor& x) {
      const auto lengths = torch::arange(samples).remainder(3) + 3;
      const auto output = std::get<0>(gru->forward_with_packed_input(
          rnn::pack_padded_sequence(x, lengths, true, false)));
      return std::get<0>(rnn::pad_packed_sequence(output, true));
    };
    EXPECT_TRUE(torch::allclose(
        accelerator.full(run(accelerator.distribute(whole))), run(whole), 0, 1e-13))
        << samples;
  }
}

TEST(InnerCuts, PackedSequencesHaveThemAgain) {
  run_and_expect_success("packed_sequences_of_a_mesh", 4);
  run_and_expect_success("packed_sequences", 2);
  run_and_expect_success("packed_sequences", 3);
  run_and_expect_success("packed_sequences_of_all_kinds", 3);
}

// From every placement to every other: parts of parts travel, or of sums.
ACCEL_RANK_FUNCTION(redistributed) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor whole = torch::randn({7, 5, 6}, torch::kDouble);
  const Tensor x = accelerator.distribute(whole);
  const auto mesh = accel::distributed::mesh(x);
  using accel::distributed::Partial;
  using accel::distributed::Placement;
  using accel::distributed::Replicate;
  const std::vector<Placement> places{
      Replicate(), Shard(0), Shard(1), Shard(2), Partial()};
  for (const auto& from : places) {
    for (const auto& to : places) {
      const auto y = accel::distributed::redistribute(
          accel::distributed::distribute_tensor(whole, mesh, {from}), mesh, {to});
      EXPECT_TRUE(torch::equal(accelerator.full(y), whole)) << from << to;
      EXPECT_TRUE(to == Replicate() || placements(y).at(0) == to) << from << to;
    }
  }
}

TEST(InnerCuts, BecomeAllOthers) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("redistributed", processes);
  }
}
