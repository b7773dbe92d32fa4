// Units: the parameters of a layer are gathered in one message, into memory
// that is used again, and their gradients are summed in one. How many messages
// that are, that nobody ever reads what was gathered before a write, and that
// gradients are one device's.

#include "training.h"

#include <accel/activation_checkpoint.h>

#include "distributed/collectives.h"
#include "parallel/model_units.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {
namespace {

/// Layers of more than a mebibyte, so that each is a unit.
constexpr int64_t kWide = 520;

nn::Sequential wide_layers(int64_t layers, int64_t width = kWide) {
  torch::manual_seed(3);
  nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    net->push_back(nn::Linear(width, width));
    net->push_back(nn::Tanh());
  }
  return net;
}

// ---- What is a unit.

std::vector<size_t> sizes_of(const nn::Module& model) {
  std::vector<size_t> sizes;
  for (const auto& unit : parallel::model_units(model)) {
    sizes.push_back(unit.size());
  }
  return sizes;
}

TEST(Units, AreLayersAndBlocks) {
  EXPECT_EQ(sizes_of(*wide_layers(3)), (std::vector<size_t>{2, 2, 2}));
  // Small neighbours are one.
  EXPECT_EQ(sizes_of(*wide_layers(40, 8)), (std::vector<size_t>{80}));
  // Blocks stay together, what holds all of the model does not.
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayer(
          nn::TransformerEncoderLayerOptions(256, 4).dim_feedforward(512)),
      5));
  EXPECT_EQ(sizes_of(*encoder), (std::vector<size_t>{12, 12, 12, 12, 12}));
}

// ---- Messages.

/// How many messages have gathered parameters while `f` ran.
template <typename F>
int64_t gathers_of(F&& f) {
  const int64_t before = ad::traffic().gathers;
  f();
  return ad::traffic().gathers - before;
}

ACCEL_RANK_FUNCTION(units_are_one_message) {
  const bool keeps = std::getenv("KEEPS") != nullptr;
  Accelerator accelerator(sharded(
      keeps ? ShardingStrategy::kShardGradOp : ShardingStrategy::kFullShard));
  auto net = wide_layers(5);
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  Tensor loss;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    EXPECT_EQ(gathers_of([&] { loss = net->forward(x).pow(2).sum(); }), 5);
    // The last two are still there, and the first one's weight is not needed.
    EXPECT_EQ(gathers_of([&] { accelerator.backward(loss); }), keeps ? 0 : 2);
    EXPECT_EQ(gathers_of([&] { optimizer.step(); }), 0);
  }
  torch::NoGradGuard no_grad;
  EXPECT_EQ(gathers_of([&] { net->forward(x); }), 5);
  EXPECT_EQ(gathers_of([&] { net->forward(x); }), keeps ? 0 : 5);
}

TEST(Units, AreOneMessageEach) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_are_one_message", processes);
    RunOptions keeps;
    keeps.environment["KEEPS"] = "1";
    run_and_expect_success("units_are_one_message", processes, keeps);
  }
}

// ---- Writes between two reads.

/// Something that changes a parameter, in the plain model and in the divided
/// one.
struct Write {
  const char* name;
  std::function<void(Tensor parameter)> run;
  bool of_matrices = false;
};

const std::vector<Write>& writes() {
  static const std::vector<Write> all{
      {"add_", [](Tensor p) { p.add_(torch::ones_like(p), 0.01); }},
      {"mul_", [](Tensor p) { p.mul_(0.5); }},
      {"add_ of a number", [](Tensor p) { p.add_(0.1); }},
      {"copy_", [](Tensor p) { p.copy_(torch::full(p.sizes(), 0.02)); }},
      {"zero_", [](Tensor p) { p.zero_(); }},
      {"fill_", [](Tensor p) { p.fill_(0.03); }},
      {"init", [](Tensor p) { nn::init::constant_(p, 0.04); }},
      {"addcmul_", [](Tensor p) { p.addcmul_(p, p, 0.3); }},
      {"out=",
       [](Tensor p) { torch::mul_out(p, p.clone(), torch::full({}, 0.7)); }},
      {"clamp_", [](Tensor p) { p.clamp_(-0.01, 0.01); }},
      {"a view", [](Tensor p) { p.view({-1}).mul_(0.6); }},
      {"a row", [](Tensor p) { p[3].fill_(0.5); }},
      {"rows", [](Tensor p) { p.narrow(0, 1, 2).zero_(); }},
      {"transposed", [](Tensor p) { p.t().mul_(0.4); }, true},
      {"detached", [](Tensor p) { p.detach().mul_(0.3); }},
      {"data", [](Tensor p) { p.data().mul_(0.3); }},
      {"set_data", [](Tensor p) { p.set_data(p.detach() * 0.2); }},
      {"set_data of a whole tensor",
       [](Tensor p) {
         p.set_data(torch::full(p.sizes(), 0.05, p.scalar_type()));
       }},
      {"the local part", [](Tensor p) { ad::to_local(p.detach()).mul_(0.2); }},
      {"a view of the local part",
       [](Tensor p) { ad::to_local(p.detach()).view({-1}).mul_(0.2); }},
      {"the local part of a view",
       [](Tensor p) { ad::to_local(p.detach().t()).mul_(0.2); },
       true},
      {"an optimizer",
       [](Tensor p) {
         p.mutable_grad() = torch::ones_like(p) * 0.1;
         optim::Adam optimizer({p}, optim::AdamOptions(0.01));
         optimizer.step();
         p.mutable_grad().reset();
       }},
  };
  return all;
}

ACCEL_RANK_FUNCTION(units_see_writes) {
  torch::manual_seed(2);
  const auto x = torch::randn({6, kWide});
  for (const auto strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    Accelerator accelerator(sharded(strategy));
    for (const auto& write : writes()) {
      // Of the first layer and of the last one, weight and bias.
      for (const size_t i : {0, 1, 2}) {
        auto plain = wide_layers(2);
        auto net = wide_layers(2);
        accelerator.prepare(net);
        const auto expect_same = [&](const char* when) {
          const auto expected = plain->forward(x);
          for (int k = 0; k < 2; ++k) {
            const auto actual =
                accelerator.full(net->forward(accelerator.distribute(x)));
            EXPECT_TRUE(torch::allclose(actual, expected, 1e-4, 1e-5))
                << write.name << " of parameter " << i << ", " << when;
          }
        };
        torch::NoGradGuard no_grad;
        const auto parameter = net->parameters()[i];
        if (parameter.dim() < 2 && write.of_matrices) {
          continue;
        }
        for (const char* when : {"once", "twice"}) {
          expect_same("before");
          write.run(plain->parameters()[i]);
          write.run(parameter);
          expect_same(when);
        }
      }
    }
  }
}

TEST(Units, SeeWhatIsWrittenBetweenTwoReads) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_see_writes", processes);
  }
}

/// Whatever a program does in whatever order: reads of some layers, with and
/// without a graph, backward, steps, and writes of every kind in between.
ACCEL_RANK_FUNCTION(units_survive_anything) {
  const auto strategy = std::getenv("KEEPS") != nullptr
                            ? ShardingStrategy::kShardGradOp
                            : ShardingStrategy::kFullShard;
  Accelerator accelerator(sharded(strategy));
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    constexpr int64_t kLayers = 5;
    std::vector<std::shared_ptr<nn::SequentialImpl>> nets;
    for (int i = 0; i < 2; ++i) {
      nets.push_back(wide_layers(kLayers).ptr());
      nets.back()->to(torch::kDouble);
    }
    const auto parameters =
        std::vector{nets[0]->parameters(), nets[1]->parameters()};
    optim::SGD plain(parameters[0], 0.01);
    AcceleratedOptimizer<optim::SGD> divided(parameters[1], 0.01);
    accelerator.prepare(nets[1], divided);
    std::string done = "seed " + std::to_string(seed) + ":";
    for (int action = 0; action < 60; ++action) {
      const size_t which = below(10);
      torch::manual_seed(1000 * seed + action);
      if (which < 4) {
        // From one layer to another, which may come twice.
        const auto x = torch::randn({5, kWide}, torch::kDouble);
        std::vector<size_t> layers;
        for (size_t i = 0; i < 1 + below(6); ++i) {
          layers.push_back(below(kLayers));
        }
        const bool learns = below(2) == 0;
        const bool steps = below(2) == 0;
        const bool again = learns && below(3) == 0;
        done += learns ? again ? " backward twice" : " backward" : " read";
        done += learns && steps ? " and step;" : ";";
        std::vector<Tensor> losses;
        for (int i = 0; i < 2; ++i) {
          torch::AutoGradMode mode(learns);
          auto y = i == 0 ? x : accelerator.distribute(x);
          for (const size_t layer : layers) {
            y = torch::tanh(
                (*nets[i])[2 * layer]->as<nn::Linear>()->forward(y));
          }
          auto loss = y.pow(2).sum();
          losses.push_back(accelerator.full(loss.detach()));
          if (learns && i == 0) {
            loss.backward({}, again);
            if (again) {
              loss.backward();
            }
          } else if (learns) {
            accelerator.backward(loss, BackwardOptions().retain_graph(again));
            if (again) {
              accelerator.backward(loss);
            }
          }
        }
        ASSERT_TRUE(torch::allclose(losses[1], losses[0], 1e-9, 1e-9)) << done;
        if (learns && steps) {
          plain.step();
          divided.step();
          if (below(2) == 0) {
            plain.zero_grad();
            divided.zero_grad();
          }
        }
      } else {
        const size_t i = below(parameters[0].size());
        const auto& write = writes()[below(writes().size())];
        if (std::string(write.name) == "an optimizer" ||
            (write.of_matrices && parameters[0][i].dim() < 2)) {
          continue; // Takes the gradient.
        }
        done +=
            " " + std::string(write.name) + " of " + std::to_string(i) + ";";
        torch::NoGradGuard no_grad;
        write.run(parameters[0][i]);
        write.run(parameters[1][i]);
      }
    }
    for (size_t i = 0; i < parameters[0].size(); ++i) {
      EXPECT_TRUE(torch::allclose(
          ad::full_tensor(parameters[1][i].detach()),
          parameters[0][i],
          1e-9,
          1e-9))
          << i << " behind " << done;
    }
  }
}

TEST(Units, SurviveAnything) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_survive_anything", processes);
    RunOptions keeps;
    keeps.environment["KEEPS"] = "1";
    run_and_expect_success("units_survive_anything", processes, keeps);
  }
}

/// Through memory that no operator knows, on one process only: it was given out
/// before the unit was gathered.
ACCEL_RANK_FUNCTION(units_see_raw_writes) {
  Accelerator accelerator(sharded());
  auto net = wide_layers(2);
  accelerator.prepare(net);
  const auto x = accelerator.distribute(torch::ones({6, kWide}));
  torch::NoGradGuard no_grad;
  const auto weight = net->parameters()[0];
  const auto local = accelerator.process_index() == 1
                         ? ad::to_local(weight.detach())
                         : Tensor();
  for (int i = 1; i < 4; ++i) {
    net->forward(x);
    if (local.defined()) {
      std::fill_n(
          local.data_ptr<float>(), local.numel(), static_cast<float>(i));
    }
    const auto y = accelerator.full(torch::linear(x, weight));
    EXPECT_EQ(y[0][kWide - 1].item<float>(), static_cast<float>(i * kWide));
  }
}

TEST(Units, SeeWhatIsWrittenToMemoryThatWasGivenOut) {
  run_and_expect_success("units_see_raw_writes", 2);
}

// ---- Results that are the gathered parameter itself.

ACCEL_RANK_FUNCTION(units_lend_no_memory) {
  Accelerator accelerator(sharded());
  auto plain = wide_layers(4);
  auto net = wide_layers(4);
  accelerator.prepare(net);
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  torch::NoGradGuard no_grad;
  const auto weight = net->parameters()[0];
  const auto whole = plain->parameters()[0];
  const auto check = [&](const char* name,
                         const std::function<Tensor(const Tensor&)>& f) {
    net->forward(x);
    auto result = f(weight);
    const auto expected = f(whole);
    for (int i = 0; i < 2; ++i) {
      net->forward(x); // Uses the memory again.
      EXPECT_TRUE(torch::equal(accelerator.full(result), expected)) << name;
    }
    // And nobody sees what is written into it.
    if (name[0] != '=') {
      result.zero_();
      EXPECT_TRUE(torch::equal(accelerator.full(weight), whole)) << name;
      const auto eye = torch::eye(kWide);
      EXPECT_TRUE(torch::equal(
          accelerator.full(torch::mm(eye, weight)), torch::mm(eye, whole)))
          << name;
    }
  };
  check("redistribute", [&](const Tensor& t) {
    return ad::full_tensor(t).clone();
  });
  check("contiguous", [](const Tensor& t) { return t.t().contiguous(); });
  check("=contiguous", [](const Tensor& t) { return t.contiguous(); });
  check("=view", [](const Tensor& t) { return t.view({kWide / 2, 2, kWide}); });
  check("=reshape", [](const Tensor& t) { return t.reshape({-1}); });
  check("=flatten", [](const Tensor& t) { return t.t().flatten(); });
  check("=expand", [](const Tensor& t) { return t.expand({2, kWide, kWide}); });
  check("=dropout", [](const Tensor& t) {
    return torch::dropout(t, 0.5, false);
  });
  check("=to", [](const Tensor& t) { return t.to(torch::kFloat); });
  check("=select", [](const Tensor& t) { return t[2]; });
  check("=slice", [](const Tensor& t) { return t.slice(0, 1, 400, 3); });
  check("=chunk", [](const Tensor& t) { return t.chunk(3)[1]; });
  check("=atleast", [](const Tensor& t) { return torch::atleast_3d(t); });
  check("=index", [](const Tensor& t) {
    return t.index_select(0, torch::arange(5));
  });
  check("=cat", [](const Tensor& t) { return torch::cat({t, t}, 1); });
  check("=as_strided", [](const Tensor& t) {
    return t.as_strided({4, 4}, {kWide, 1});
  });
  check("=diagonal", [](const Tensor& t) { return t.diagonal(); });
  check("=unfold", [](const Tensor& t) { return t.unfold(0, 10, 5); });
  check("=real", [](const Tensor& t) { return torch::real(t); });
}

TEST(Units, LendTheirMemoryToNoResult) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_lend_no_memory", processes);
  }
}

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
    processes.Communicator::gather_pieces(slowly);
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
        processes.Communicator::sum_pieces(summed);
      }
      expect_sums(quickly ? "in shared memory" : "as messages");
    }
  }
}

TEST(Units, AreCarriedBitForBit) {
  for (const int processes : {2, 3, 4}) {
    run_and_expect_success("units_carry_pieces", processes);
  }
  RunOptions sockets;
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

TEST(Units, SumTheirGradientsInOneMessageEach) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_sum_in_one_message", processes);
  }
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

ACCEL_RANK_FUNCTION(units_train_like_one_device) {
  const bool groups = std::getenv("GROUPS") != nullptr;
  const std::vector<ShardingStrategy> strategies =
      groups
          ? std::
                vector{ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardZero2}
          : std::vector{
                ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp};
  for (const auto strategy : strategies) {
    auto how = sharded(strategy);
    if (groups) {
      how.parallelism_config(
          ParallelismConfig().dp_replicate_size(2).dp_shard_size(2));
    }
    Accelerator accelerator(how);
    expect_odd_trains_like_one_device(accelerator, /*exact=*/true);
    expect_odd_trains_like_one_device(accelerator, /*exact=*/false);
  }
}

TEST(Units, TrainLikeOneDevice) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success("units_train_like_one_device", processes);
  }
  RunOptions sockets; // Without memory that the processes share.
  sockets.environment["ACCEL_SHARED_MEMORY"] = "0";
  run_and_expect_success("units_train_like_one_device", 2, sockets);
  RunOptions groups;
  groups.environment["GROUPS"] = "1";
  run_and_expect_success("units_train_like_one_device", 4, groups);
}

} // namespace
} // namespace accel::test
