// The gradients of a unit are summed in one message: what carries it, how many
// there are, and that gradients are those of one device.

#include "training.h"

#include <accel/activation_checkpoint.h>

#include "distributed/collectives.h"
#include "parallel/model_units.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {
namespace {

// ---- What carries them.

/// `count` tensors, the same in number everywhere, of some sizes: more than
/// goes through the shared memory at a time, nothing, and what is no multiple
/// of anything.
std::vector<int64_t> rows_of_pieces() {
  return {1, 0, 300007, 5, 2, 64};
}

ACCEL_RANK_FUNCTION(units_carry_pieces) {
  Accelerator accelerator;
  auto& processes = accel::detail::communicator();
  const int64_t n = processes.size();
  const int64_t me = processes.rank();
  const auto rows = rows_of_pieces();
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    torch::manual_seed(7);
    // Of each process, in its rows; process r has r more than the first one.
    std::vector<std::vector<Tensor>> all(n);
    accel::detail::GatheredPieces gathered;
    accel::detail::SummedPieces summed;
    const auto width = static_cast<int64_t>(torch::elementSize(dtype));
    int64_t at = 0;
    for (int64_t r = 0; r < n; ++r) {
      for (const int64_t count : rows) {
        all[r].push_back(torch::randn({count + r}).to(dtype));
        gathered.begins.push_back(at);
        gathered.counts.push_back((count + r) * width);
        at += (count + r) * width + 64;
      }
    }
    gathered.pieces = all[me];
    gathered.whole = torch::zeros({at}, torch::kByte);
    auto slowly = gathered;
    slowly.whole = torch::zeros({at}, torch::kByte);
    processes.gather_pieces(gathered);
    processes.Communicator::gather_pieces_async(slowly)();
    EXPECT_TRUE(torch::equal(gathered.whole, slowly.whole));
    for (int64_t r = 0; r < n; ++r) {
      for (size_t k = 0; k < rows.size(); ++k) {
        const size_t i = r * rows.size() + k;
        EXPECT_TRUE(torch::equal(
            gathered.whole.narrow(0, gathered.begins[i], gathered.counts[i]),
            all[r][k].view(torch::kByte)));
      }
    }

    // What all sum of pieces of the same sizes: the elements from 2 r on, 3
    // less than all where there are so many.
    std::vector<Tensor> sums;
    for (size_t k = 0; k < rows.size(); ++k) {
      summed.pieces.push_back(all[me][k].narrow(0, 0, rows[k]).clone());
      auto sum = all[0][k].narrow(0, 0, rows[k]).clone();
      for (int64_t r = 1; r < n; ++r) {
        sum.add_(all[r][k].narrow(0, 0, rows[k]));
      }
      sums.push_back(sum);
    }
    for (int64_t r = 0; r < n; ++r) {
      for (const int64_t count : rows) {
        const int64_t begin = std::min(2 * r, count);
        summed.begins.push_back(begin);
        summed.counts.push_back(std::max<int64_t>(count - begin - 3, 0));
      }
    }
    const auto expect_sums = [&](const char* how) {
      for (size_t k = 0; k < rows.size(); ++k) {
        const size_t i = me * rows.size() + k;
        EXPECT_TRUE(torch::equal(
            summed.sums[k],
            sums[k].narrow(0, summed.begins[i], summed.counts[i])))
            << how << ' ' << k << " of " << dtype;
      }
    };
    for (const bool quickly : {true, false}) {
      summed.sums.clear();
      for (size_t k = 0; k < rows.size(); ++k) {
        summed.sums.push_back(
            torch::zeros({summed.counts[me * rows.size() + k]}, dtype));
      }
      if (quickly) {
        processes.sum_pieces(summed);
      } else {
        processes.Communicator::sum_pieces_async(summed)();
      }
      expect_sums(quickly ? "in shared memory" : "as messages");
    }
  }
}

TEST(UnitGradients, AreCarriedBitForBit) {
  for (const int processes : {2, 3, 4}) {
    run_and_expect_success("units_carry_pieces", processes, patient());
  }
  RunOptions sockets = patient();
  sockets.environment["ACCEL_SHARED_MEMORY"] = "0";
  run_and_expect_success("units_carry_pieces", 3, sockets);
}

// ---- Gradients.

ACCEL_RANK_FUNCTION(units_sum_in_one_message) {
  Accelerator accelerator(sharded());
  auto net = wide_layers(5);
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  for (int i = 0; i < 3; ++i) {
    const auto loss = net->forward(x).pow(2).sum();
    const auto before = ad::traffic();
    accelerator.backward(loss);
    EXPECT_EQ(ad::traffic().exchanges - before.exchanges, 5);
    EXPECT_EQ(ad::traffic().reductions - before.reductions, 0);
    for (const auto& parameter : net->parameters()) {
      EXPECT_EQ(ad::placements(parameter.grad())[0], ad::Shard(0));
    }
    optimizer.step(); // Accumulates: nobody has cleared the gradients.
  }
}

TEST(UnitGradients, SumTheirGradientsInOneMessageEach) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_sum_in_one_message", processes, patient());
  }
}

ACCEL_RANK_FUNCTION(units_sum_beside_backward) {
  const bool over_gloo = std::getenv("ACCEL_SHARED_MEMORY") != nullptr;
  Accelerator accelerator(sharded());
  auto net = wide_layers(5);
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto last = net->parameters().at(8); // The weight of unit 4, …
  const auto before = net->parameters().at(6); // … and of unit 3.
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  const auto input = through(net, x, {0, 1});
  int calls = 0;
  input.register_hook([&](const Tensor&) {
    // Unit 4 was started with the first gradient of unit 3, and unit 3 with that
    // of unit 2, before which unit 4 is waited for.
    EXPECT_TRUE(last.grad().defined());
    EXPECT_EQ(before.grad().defined(), !over_gloo);
    ++calls;
  });
  accelerator.backward(through(net, input, {2, 3, 4}).pow(2).sum());
  EXPECT_EQ(calls, 1);
  for (const auto& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.grad().defined());
  }
}

TEST(UnitGradients, TravelWhileBackwardGoesOn) {
  const char* const beside = "units_sum_beside_backward";
  run_and_expect_success(beside, 2, patient());
  run_and_expect_success(beside, 2, patient({{"ACCEL_SHARED_MEMORY", "0"}}));
}

constexpr int64_t kDouble = 370; // more than a mebibyte, too

/// Layers with all that a gradient may meet: one is frozen, one is not used at
/// first, one is used twice, one has the weight of another, one has another
/// dtype, one is recomputed, one has a hook; a penalty is not made of the
/// batch.
struct Odd : nn::Module {
  explicit Odd(bool exact) : dtype(exact ? torch::kDouble : torch::kFloat) {
    torch::manual_seed(11);
    for (const char* name :
         {"plain",
          "frozen",
          "unused",
          "twice",
          "other",
          "again",
          "hooked",
          "last"}) {
      auto layer = register_module(name, nn::Linear(kDouble, kDouble));
      layer->to(std::string(name) == "other" ? dtype : torch::kDouble);
      layers[name] = layer;
    }
    register_parameter("shared", layers["plain"]->weight);
    layers["frozen"]->weight.set_requires_grad(false);
  }
  Tensor forward(Tensor x, bool all) {
    const auto through = [&](const char* name, const Tensor& t) {
      return torch::tanh(layers.at(name)->forward(t));
    };
    x = through("plain", x);
    x = through("twice", through("frozen", x));
    if (all) {
      x = x + through("unused", x);
    }
    x = torch::tanh(
        torch::linear(through("twice", x), layers["plain"]->weight));
    x = x + through("other", x.to(dtype)).to(torch::kDouble);
    x = checkpoint_activations(
        [layer = layers["again"]](const Tensor& t) {
          return torch::tanh(layer->forward(t));
        },
        x);
    x = through("hooked", x);
    return layers.at("last")->forward(x);
  }
  const torch::Dtype dtype; // of one layer
  std::map<std::string, std::shared_ptr<nn::LinearImpl>> layers;
};

struct OddTraining {
  OddTraining(Accelerator* run, bool exact)
      : run(run), net(std::make_shared<Odd>(exact)) {
    optim::SGDOptions options(0.05);
    options.momentum(0.5);
    if (run != nullptr) {
      optimizer = std::make_unique<AcceleratedOptimizer<optim::SGD>>(
          net->parameters(), options);
      run->prepare(net, *optimizer);
    } else {
      optimizer = std::make_unique<optim::SGD>(net->parameters(), options);
    }
    net->layers["hooked"]->weight.register_hook(
        [](const Tensor& g) { return g * 0.5 + 0.001; });
    net->layers["hooked"]->bias.register_hook(
        [](const Tensor& g) { return g.clamp(-0.01, 0.01); });
  }
  void backward(const Tensor& loss, bool again = false) {
    if (run != nullptr) {
      run->backward(loss, BackwardOptions().retain_graph(again));
    } else {
      loss.backward({}, again);
    }
  }
  double step(int64_t i) {
    torch::manual_seed(100 + i);
    auto x = torch::randn({i == 2 ? 3 : 8, kDouble}, torch::kDouble);
    if (run != nullptr) {
      x = run->distribute(x);
    }
    auto loss = net->forward(x, i > 1).pow(2).mean();
    if (i % 2 == 1) {
      loss = loss + net->layers["last"]->weight.pow(2).sum() * 0.01;
    }
    if (i == 3) {
      // Gradients that are asked for do not disturb those that are kept.
      const auto asked = torch::autograd::grad(
          {loss}, {net->layers["last"]->weight}, {}, /*retain_graph=*/true);
      seen.push_back(asked[0].sum().item<double>());
    }
    backward(loss, i == 4);
    if (i == 4) {
      backward(loss);
    }
    if (i != 0) { // The first one is added to.
      optimizer->step();
      optimizer->zero_grad(i % 2 == 0);
    }
    return loss.item<double>();
  }
  Accelerator* run;
  std::shared_ptr<Odd> net;
  std::unique_ptr<optim::SGD> optimizer;
  std::vector<double> seen;
};

/// With a layer of floats (not `exact`), or none.
void expect_odd_trains_like_one_device(Accelerator& accelerator, bool exact) {
  const double most = exact ? 1e-11 : 1e-6;
  OddTraining plain(nullptr, exact);
  OddTraining divided(&accelerator, exact);
  EXPECT_GT(parallel::model_units(*divided.net).size(), 7u);
  for (int64_t i = 0; i < 7; ++i) {
    const double expected = plain.step(i);
    EXPECT_NEAR(divided.step(i), expected, most) << i;
    const auto its = divided.net->named_parameters();
    for (const auto& item : plain.net->named_parameters()) {
      EXPECT_TRUE(torch::allclose(
          ad::full_tensor(its[item.key()].detach()),
          item.value(),
          10 * most,
          10 * most))
          << item.key() << " in step " << i;
      EXPECT_EQ(item.value().grad().defined(), its[item.key()].grad().defined())
          << item.key() << " in step " << i;
    }
  }
  ASSERT_EQ(plain.seen.size(), divided.seen.size());
  for (size_t i = 0; i < plain.seen.size(); ++i) {
    EXPECT_NEAR(divided.seen[i], plain.seen[i], most);
  }
}

/// The sizes of the mesh beside dp_shard, whose is 2.
ParallelismConfig beside(const std::string& axis) {
  auto config = ParallelismConfig().dp_shard_size(2);
  return axis == "dp_replicate" ? config.dp_replicate_size(2)
      : axis == "cp"            ? config.cp_size(2)
                                : config.tp_size(2);
}

ACCEL_RANK_FUNCTION(units_train_like_one_device) {
  const char* const axis = std::getenv("BESIDE");
  const std::vector<ShardingStrategy> strategies =
      axis != nullptr && axis == std::string("dp_replicate")
          ? std::
                vector{ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardZero2}
          : std::vector{
                ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp};
  for (const auto strategy : strategies) {
    auto how = sharded(strategy);
    if (axis != nullptr) {
      how.parallelism_config(beside(axis));
    }
    if (axis != nullptr && axis == std::string("tp")) {
      how.torch_tp_plugin(TorchTensorParallelPlugin().plan(
          {{"plain", "colwise"},
           {"twice", "rowwise"},
           {"frozen", "colwise"},
           {"other", "rowwise"},
           {"again", "colwise"},
           {"hooked", "rowwise"},
           {"last", "colwise"}}));
    }
    Accelerator accelerator(how);
    expect_odd_trains_like_one_device(accelerator, std::getenv("EXACT") != nullptr);
  }
}

TEST(UnitGradients, TrainLikeOneDevice) {
  const char* const training = "units_train_like_one_device";
  for (const int processes : {1, 3}) {
    run_and_expect_success(training, processes, patient({{"EXACT", "1"}}));
  }
  run_and_expect_success(training, 2, patient());
  // Without memory that the processes share.
  run_and_expect_success(training, 2, patient({{"ACCEL_SHARED_MEMORY", "0"}}));
  for (const char* axis : {"dp_replicate", "tp", "cp"}) {
    run_and_expect_success(
        training, 4, patient({{"BESIDE", axis}, {"EXACT", "1"}}));
  }
}

} // namespace
} // namespace accel::test
