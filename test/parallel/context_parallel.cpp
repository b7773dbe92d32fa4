// Context and sequence parallelism: sequences of which each process has some
// positions, against LibTorch alone.

#include "sequences.h"

#include "distributed/collectives.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>

#include <malloc.h>

namespace accel::test {
namespace {

/// As CP, SP, TP and SHARD say, with RING above 1 alltoall; the rest of the processes
/// are groups.
AcceleratorOptions in_positions() {
  const int64_t cp = size_of("CP_OF_RUN"), sp = size_of("SP_OF_RUN"),
                tp = size_of("TP_OF_RUN"), shard = size_of("SHARD_OF_RUN");
  return AcceleratorOptions().match_single_device(true).parallelism_config(
      ParallelismConfig().cp_size(cp).sp_size(sp).tp_size(tp).dp_shard_size(shard)
          .cp_handler(TorchContextParallelConfig().cp_comm_strategy(
              size_of("RING_OF_RUN") > 1 ? CpCommStrategy::kAlltoall
                                         : CpCommStrategy::kAllgather))
          .dp_replicate_size(size_of("WORLD_SIZE") / cp / sp / tp / shard));
}

RunOptions positions_of(const std::map<std::string, int>& sizes) {
  RunOptions options;
  for (const auto& [name, size] : sizes) {
    options.environment[name + "_OF_RUN"] = std::to_string(size);
  }
  options.timeout = std::chrono::seconds(240); // a machine with other work
  return options;
}

/// Attention by LibTorch's fused kernel.
struct FusedAttention : nn::Module {
  explicit FusedAttention(int64_t heads) : heads_(heads) {
    q = register_module("q", nn::Linear(12, 12));
    kv = register_module("kv", nn::Linear(12, 24));
    out = register_module("out", nn::Linear(12, 12));
  }
  Tensor split(const Tensor& x) const {
    return x.view({x.size(0), x.size(1), heads_, 12 / heads_}).transpose(1, 2);
  }
  Tensor forward(
      const Tensor& x,
      const Tensor& memory,
      const std::optional<Tensor>& mask,
      bool causal) {
    const auto parts = kv->forward(memory).chunk(2, -1);
    const auto y = at::scaled_dot_product_attention(
        split(q->forward(x)), split(parts[0]), split(parts[1]), mask, 0.0, causal);
    if (seen) {
      seen(y);
    }
    return out->forward(y.transpose(1, 2).reshape(x.sizes()));
  }
  int64_t heads_;
  nn::Linear q = nullptr, kv = nullptr, out = nullptr;
  /// Sees what attention gives.
  std::function<void(const Tensor&)> seen;
};

/// Words to the next words: causal attention, attention with a mask, to a memory
/// of another length, and LibTorch's own layers; dropout between.
struct Reader : nn::Module {
  Reader() {
    torch::manual_seed(4);
    table = register_module("table", nn::Embedding(11, 12));
    positions = register_parameter("positions", torch::randn({16, 12}));
    causal = register_module("causal", std::make_shared<FusedAttention>(3));
    masked = register_module("masked", std::make_shared<FusedAttention>(2));
    cross = register_module("cross", std::make_shared<FusedAttention>(4));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({12})));
    up = register_module("up", nn::Linear(12, 20));
    down = register_module("down", nn::Linear(20, 12));
    layer = register_module(
        "layer", nn::TransformerEncoderLayer(
                     nn::TransformerEncoderLayerOptions(12, 2)
                         .dim_feedforward(10)
                         .dropout(0.1)));
    head = register_module("head", nn::Linear(12, 11));
    to(torch::kDouble);
  }
  /// [batch, time] to [batch, time, 11].
  Tensor forward(const Tensor& words) {
    const int64_t time = words.size(1);
    auto x = table->forward(words) + positions.slice(0, 0, time);
    const auto memory = table->forward(words.slice(1, 0, (time + 1) / 2));
    x = x + causal->forward(norm->forward(x), norm->forward(x), {}, true);
    const auto far = torch::arange(time).unsqueeze(1) - torch::arange(time);
    const auto mask = far.abs().gt(2).to(torch::kDouble) * -3.0;
    x = x + masked->forward(x, x, mask, false);
    x = torch::dropout(x, 0.1, is_training());
    x = x + cross->forward(x, memory, {}, false);
    x = x + down->forward(torch::gelu(up->forward(norm->forward(x))));
    const auto next = torch::full({time, time}, -1e9, torch::kDouble).triu(1);
    x = layer->forward(x.transpose(0, 1), next).transpose(0, 1);
    return head->forward(x);
  }
  nn::Embedding table = nullptr;
  Tensor positions;
  std::shared_ptr<FusedAttention> causal, masked, cross;
  nn::LayerNorm norm = nullptr;
  nn::Linear up = nullptr, down = nullptr, head = nullptr;
  nn::TransformerEncoderLayer layer = nullptr;
};

std::vector<double> train_reader(
    Accelerator* run,
    const std::shared_ptr<Reader>& net,
    optim::Optimizer& optimizer) {
  const auto forward = [](const auto& reader, const Tensor& words) {
    return reader->forward(words);
  };
  return losses_of_reading(run, net, optimizer, 10, forward);
}

ACCEL_RANK_FUNCTION(context_parallel_reader) {
  Accelerator accelerator(in_positions());
  const auto options = optim::AdamWOptions(0.02);
  const auto plain = std::make_shared<Reader>();
  optim::AdamW plain_optimizer(plain->parameters(), options);
  const auto expected = train_reader(nullptr, plain, plain_optimizer);
  const auto net = std::make_shared<Reader>();
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), options);
  accelerator.prepare(net, optimizer);
  const auto losses = train_reader(&accelerator, net, optimizer);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-9) << i;
  }
  expect_equal(*net, *plain, 1e-9);
}

TEST(ContextParallel, TrainsLikeOneDevice) {
  for (const int n : {2, 3}) {
    run_and_expect_success("context_parallel_reader", n, positions_of({{"CP", n}}));
    run_and_expect_success(
        "context_parallel_reader", n, positions_of({{"CP", n}, {"RING", 2}}));
    run_and_expect_success("context_parallel_reader", n, positions_of({{"SP", n}}));
  }
}

TEST(ContextParallel, WithOtherKinds) {
  for (const auto& sizes : std::vector<std::map<std::string, int>>{
           {{"CP", 2}}, // and two groups
           {{"SP", 2}, {"SHARD", 2}},
           {{"CP", 2}, {"SHARD", 2}},
           {{"CP", 2}, {"TP", 2}},
           {{"CP", 2}, {"TP", 2}, {"RING", 2}}}) {
    run_and_expect_success("context_parallel_reader", 4, positions_of(sizes));
  }
}

/// Each process computes its positions from the words to the loss.
ACCEL_RANK_FUNCTION(context_parallel_places) {
  Accelerator accelerator(in_positions());
  const bool cp = size_of("CP_OF_RUN") > 1, ring = size_of("RING_OF_RUN") > 1;
  EXPECT_EQ(accelerator.context_parallel_rank(), cp ? accelerator.process_index() : 0);
  EXPECT_EQ(accelerator.device_mesh().ndim(), 1);
  const auto net = std::make_shared<Reader>();
  int seen = 0;
  for (const auto& attention : {net->causal, net->masked, net->cross}) {
    attention->seen = [&](const Tensor& y) {
      EXPECT_EQ(ad::placements(y.detach()), std::vector<ad::Placement>{ad::Shard(2)});
      EXPECT_EQ(ad::to_local(y.detach()).size(2), 5);
      ++seen;
    };
  }
  accelerator.prepare(net);
  const auto words = accelerator.distribute(reading(1, 10));
  EXPECT_EQ(ad::placements(words), std::vector<ad::Placement>{ad::Shard(1)});
  const auto before = ad::traffic();
  const auto y = net->forward(words);
  EXPECT_EQ(ad::placements(y.detach()), std::vector<ad::Placement>{ad::Shard(1)});
  EXPECT_EQ(seen, 3);
  const auto after = ad::traffic();
  // Keys and values of LibTorch's own layer, which multiplies matrices (the words of
  // the memory are still those that were cut); keys and values of three attentions, or
  // their queries, keys, values and results, or a message of keys and values to the
  // other process.
  EXPECT_EQ(after.gathers - before.gathers, cp && !ring ? 8 : 2);
  EXPECT_EQ(after.exchanges - before.exchanges, ring ? 3 : cp ? 0 : 12);
}

TEST(ContextParallel, EachProcessHasItsPositions) {
  run_and_expect_success("context_parallel_places", 2, positions_of({{"CP", 2}}));
  run_and_expect_success(
      "context_parallel_places", 2, positions_of({{"CP", 2}, {"RING", 2}}));
  run_and_expect_success("context_parallel_places", 2, positions_of({{"SP", 2}}));
}

/// Samples of so many words, each its own.
struct Texts : torch::data::datasets::Dataset<Texts> {
  torch::data::Example<> get(size_t i) override {
    const auto words =
        (torch::arange(6) * 5 + static_cast<int64_t>(i)).remainder(11);
    return {words, (words + 1).remainder(11)};
  }
  std::optional<size_t> size() const override {
    return 10;
  }
};

/// Batches of a loader are cut along both.
ACCEL_RANK_FUNCTION(context_parallel_loader) {
  Accelerator accelerator(in_positions());
  auto loader = data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Texts().map(torch::data::transforms::Stack<>()), 4);
  int64_t first = 0;
  for (auto& batch : *loader) {
    const int64_t n = std::min<int64_t>(4, 10 - first);
    ASSERT_EQ(batch.data.sizes(), (std::vector<int64_t>{n, 6}));
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < n; ++i) {
      rows.push_back(Texts().get(static_cast<size_t>(first + i)).data);
    }
    EXPECT_TRUE(torch::equal(accelerator.full(batch.data), torch::stack(rows)));
    const auto mine = ad::to_local(batch.data);
    EXPECT_EQ(mine.size(1), 3);
    EXPECT_EQ(mine.size(0), size_of("WORLD_SIZE") == 2 ? n : n / 2);
    first += n;
  }
  EXPECT_EQ(first, 10);
}

TEST(ContextParallel, LoadersShareOutPositions) {
  run_and_expect_success("context_parallel_loader", 2, positions_of({{"CP", 2}}));
  run_and_expect_success("context_parallel_loader", 4, positions_of({{"CP", 2}}));
}

/// `maybe_context_parallel`: in place, and undone.
ACCEL_RANK_FUNCTION(context_parallel_buffers) {
  Accelerator accelerator(in_positions());
  const auto buffer = torch::arange(10, torch::kDouble).view({2, 5}).clone();
  const auto other = torch::arange(5, torch::kDouble);
  const auto view = buffer.slice(1, 0, 4);
  const auto words = torch::ones({2, 5});
  {
    auto context =
        accelerator.maybe_context_parallel({other, words, view}, {0, -1, 1}, {words});
    EXPECT_EQ(ad::placements(other), std::vector<ad::Placement>{ad::Shard(0)});
    EXPECT_EQ(ad::placements(words), std::vector<ad::Placement>{ad::Shard(1)});
    EXPECT_FALSE(ad::is_distributed(view)) << "shares memory with buffer";
    other[1] = 9.0; // seen behind the scope
    EXPECT_EQ(other.sum().item<double>(), 18);
  }
  EXPECT_FALSE(ad::is_distributed(other));
  EXPECT_TRUE(ad::is_distributed(words));
  EXPECT_EQ(other.sum().item<double>(), 18);
  view.zero_();
  EXPECT_EQ(buffer.sum().item<double>(), 13);
  expect_error(
      [&] { (void)accelerator.maybe_context_parallel({other}, {}); },
      "has 1 buffers and 0 buffer_seq_dims");
  expect_error(
      [&] { (void)accelerator.maybe_context_parallel({other}, {1}); },
      "buffer_seq_dims[0] is 1, and buffers[0] is of sizes [5]");
  expect_error(
      [&] { (void)accelerator.maybe_context_parallel({other}, {0}, {words}); },
      "no_restore_buffers has a tensor that is not among buffers");
  expect_error(
      [&] {
        (void)accelerator.maybe_context_parallel(
            {torch::ones({4}, torch::requires_grad())}, {0});
      },
      "buffers[0] requires gradients");
}

TEST(ContextParallel, BuffersAreSharedOutInPlace) {
  run_and_expect_success("context_parallel_buffers", 2, positions_of({{"CP", 2}}));
}

ACCEL_RANK_FUNCTION(context_parallel_without) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto words = torch::ones({2, 5});
  auto context = accelerator.maybe_context_parallel({words}, {1});
  EXPECT_FALSE(ad::is_distributed(words));
}

TEST(ContextParallel, BuffersStayWithoutIt) {
  run_and_expect_success("context_parallel_without", 2);
}

/// What attention of few queries takes above 32 MiB of keys and values, which four
/// processes share out.
ACCEL_RANK_FUNCTION(context_parallel_memory) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16);
  torch::set_num_threads(1);
  Accelerator accelerator(in_positions());
  const torch::NoGradGuard no_grad;
  const auto shared_out = [&](int64_t positions) {
    const auto mesh = accelerator.device_mesh();
    return ad::from_local(
        torch::rand({2, 32, positions / 4, 64}), mesh, {ad::Shard(2)});
  };
  const auto q = shared_out(16), k = shared_out(1024), v = shared_out(1024);
  double before = 0;
  for (int i = 0; i < 2; ++i) {
    if (i == 1) { // the processes' shared memory is there
      std::ofstream("/proc/self/clear_refs") << 5;
      before = megabytes("VmRSS:");
    }
    at::scaled_dot_product_attention(q, k, v);
  }
  std::cout << megabytes("VmHWM:") - before << std::endl;
}

TEST(ContextParallel, KeysOfTwoProcessesAtATime) {
  const auto peak = [](int ring) {
    const auto results = run_and_expect_success(
        "context_parallel_memory", 4, positions_of({{"CP", 4}, {"RING", ring}}));
    double most = 0;
    for (const auto& result : results) {
      most = std::max(most, std::atof(result.output.c_str()));
    }
    std::cout << (ring > 1 ? "alltoall: " : "allgather: ") << most << " MB\n";
    return most;
  };
  EXPECT_GT(peak(1), 32);
  EXPECT_LT(peak(2), 20); // 2/4 of it, and the attention itself
}

TEST(ContextParallel, TheWayIsInTheEnvironment) {
  const auto strategy_of = [](const std::optional<ParallelismConfig>& config) {
    return resolve(AcceleratorOptions().match_single_device(true).parallelism_config(config))
        .cp_comm_strategy;
  };
  const auto cp = ParallelismConfig().cp_size(2);
  EXPECT_EQ(strategy_of(cp), CpCommStrategy::kAllgather);
  ::setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall", 1);
  EXPECT_EQ(strategy_of(cp), CpCommStrategy::kAlltoall);
  EXPECT_EQ(strategy_of(ParallelismConfig().sp_size(2)), CpCommStrategy::kAllgather);
  auto said = cp;
  said.cp_handler(TorchContextParallelConfig().cp_comm_strategy(CpCommStrategy::kAllgather));
  EXPECT_EQ(strategy_of(said), CpCommStrategy::kAllgather);
  ::setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "ring", 1);
  expect_error([&] { (void)strategy_of(cp); }, "ring is neither allgather nor alltoall");
  ::setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall", 1);
  ::setenv("PARALLELISM_CONFIG_CP_BACKEND", "other", 1);
  expect_error([&] { (void)strategy_of(cp); }, "PARALLELISM_CONFIG_CP_BACKEND: other is not torch");
  ::unsetenv("PARALLELISM_CONFIG_CP_BACKEND");
  ::unsetenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY");
}

TEST(ContextParallel, RefusesContradictions) {
  expect_refused(
      AcceleratorOptions().match_single_device(true).parallelism_config(
          ParallelismConfig().cp_size(2).sp_size(2)),
      "cp_size is 2, and sp_size is 2");
  expect_refused(
      AcceleratorOptions().parallelism_config(ParallelismConfig().cp_size(2)),
      "match_single_device is false");
  expect_refused(
      AcceleratorOptions().match_single_device(true).parallelism_config(
          ParallelismConfig().sp_size(-1)),
      "sp_size is -1");
}

} // namespace
} // namespace accel::test
