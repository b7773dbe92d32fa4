// Units: the parameters of a layer are gathered in one message, into memory
// that is used again. How many messages that are, and that nobody ever reads
// what was gathered before a write.

#include "training.h"

#include "distributed/collectives.h"
#include "parallel/model_units.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {
namespace {

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
    run_and_expect_success("units_are_one_message", processes, patient());
    RunOptions keeps = patient();
    keeps.environment["KEEPS"] = "1";
    run_and_expect_success("units_are_one_message", processes, keeps);
  }
}

/// Weights that are cut along tp, too: each process gathers what tp leaves it.
ACCEL_RANK_FUNCTION(units_beside_tp_are_one_message) {
  auto how = sharded();
  how.parallelism_config(ParallelismConfig().dp_shard_size(2).tp_size(2));
  Accelerator accelerator(how);
  auto net = wide_layers(4); // Their rows, columns, rows and columns are along tp.
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto parameters = net->parameters();
  EXPECT_EQ(
      ad::placements(parameters[0]),
      (std::vector<ad::Placement>{ad::Shard(1), ad::Shard(0)}));
  EXPECT_EQ(
      ad::placements(parameters[2]),
      (std::vector<ad::Placement>{ad::Shard(0), ad::Shard(1)}));
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  for (int i = 0; i < 2; ++i) {
    Tensor loss;
    EXPECT_EQ(gathers_of([&] { loss = net->forward(x).pow(2).sum(); }), 4);
    const auto before = ad::traffic();
    accelerator.backward(loss);
    EXPECT_EQ(ad::traffic().gathers - before.gathers, 1); // As without tp.
    EXPECT_EQ(ad::traffic().exchanges - before.exchanges, 4);
    // Of the two biases that only tp cuts, and of what goes into the third layer.
    EXPECT_EQ(ad::traffic().reductions - before.reductions, 3);
    for (const auto& parameter : parameters) {
      EXPECT_EQ(ad::placements(parameter.grad()), ad::placements(parameter));
    }
    optimizer.step();
  }
}

TEST(Units, AreOneMessageEachBesideTensorParallelism) {
  run_and_expect_success("units_beside_tp_are_one_message", 4, patient());
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

/// Units are kept from forward to backward (SHARD_GRAD_OP), or are not: a process of
/// such a run asks options_of_this_run.
RunOptions keeping(bool keeps) {
  return patient({{"KEEPS", keeps ? "1" : "0"}});
}
AcceleratorOptions options_of_this_run() {
  auto options = sharded(
      std::string(std::getenv("KEEPS")) == "1" ? ShardingStrategy::kShardGradOp
                                               : ShardingStrategy::kFullShard);
  if (std::getenv("TP") != nullptr) {
    options.parallelism_config(ParallelismConfig().dp_shard_size(2).tp_size(2));
  }
  return options;
}
/// The same on four processes, where each weight is cut along tp, too.
RunOptions keeping_beside_tp(bool keeps) {
  return patient({{"KEEPS", keeps ? "1" : "0"}, {"TP", "1"}});
}

ACCEL_RANK_FUNCTION(units_see_writes) {
  torch::manual_seed(2);
  const auto x = torch::randn({6, kWide});
  Accelerator accelerator(options_of_this_run());
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

TEST(Units, SeeWhatIsWrittenBetweenTwoReads) {
  run_and_expect_success("units_see_writes", 2, keeping(true));
  run_and_expect_success("units_see_writes", 3, keeping(false));
  run_and_expect_success("units_see_writes", 4, keeping_beside_tp(true));
}

/// Whatever a program does in whatever order: reads of some layers, with and
/// without a graph, backward, steps, and writes of every kind in between.
ACCEL_RANK_FUNCTION(units_survive_anything) {
  Accelerator accelerator(options_of_this_run());
  const unsigned first = std::strtoul(std::getenv("FIRST_SEED"), nullptr, 10);
  const unsigned seeds = std::strtoul(std::getenv("SEEDS"), nullptr, 10);
  for (unsigned seed = first; seed < first + seeds; ++seed) {
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
  const char* const anything = "units_survive_anything";
  for (const bool keeps : {false, true}) {
    for (const int processes : {2, 3}) {
      RunOptions options = keeping(keeps);
      options.environment["FIRST_SEED"] = processes == 2 ? "0" : "3";
      options.environment["SEEDS"] = keeps == (processes == 2) ? "1" : "2";
      run_and_expect_success(anything, processes, options);
    }
  }
  RunOptions beside_tp = keeping_beside_tp(false);
  beside_tp.environment["FIRST_SEED"] = "6";
  beside_tp.environment["SEEDS"] = "1";
  run_and_expect_success(anything, 4, beside_tp);
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
  run_and_expect_success("units_see_raw_writes", 2, patient());
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
    run_and_expect_success("units_lend_no_memory", processes, patient());
  }
}

// ---- Behind a save, with operators watched, which is process 0's affair alone.

ACCEL_RANK_FUNCTION(units_stay_behind_a_save) {
  Accelerator accelerator(sharded());
  auto net = wide_layers(3);
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.001);
  accelerator.prepare(net, optimizer);
  const auto x = accelerator.distribute(torch::randn({6, kWide}));
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    const int64_t before = ad::traffic().gathers;
    const auto loss = net->forward(x).pow(2).sum();
    EXPECT_EQ(ad::traffic().gathers - before, 3);
    accelerator.backward(loss);
    optimizer.step();
    accelerator.save(net, std::getenv("SHARDED_FOLDER") + std::string("/net.pt"));
  }
}

TEST(Units, StayBehindASaveWithAReport) {
  const Folder folder;
  run_and_expect_success(
      "units_stay_behind_a_save", 2,
      folder.options({{"ACCEL_PLACEMENT_REPORT", folder.path + "/report.json"}}));
}

} // namespace
} // namespace accel::test
