// Meshes of two axes of data: groups of processes that each hold the whole training
// state, divided between the processes of the group.

#include "training.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>

namespace accel::test {
namespace {

/// As many groups as HYBRID_GROUPS says.
ParallelismConfig mesh_of_run() {
  const int64_t groups = std::stol(std::getenv("HYBRID_GROUPS"));
  const int64_t processes = std::stol(std::getenv("WORLD_SIZE"));
  return ParallelismConfig().dp_replicate_size(groups).dp_shard_size(
      processes / groups);
}

AcceleratorOptions hybrid(
    std::optional<ShardingStrategy> strategy = std::nullopt) {
  auto options = AcceleratorOptions().match_single_device(true).parallelism_config(
      mesh_of_run());
  if (strategy) {
    options.fsdp_plugin(
        FullyShardedDataParallelPlugin().sharding_strategy(strategy));
  }
  return options;
}

RunOptions groups(int number) {
  RunOptions options;
  options.environment["HYBRID_GROUPS"] = std::to_string(number);
  options.timeout = std::chrono::seconds(240); // a machine with other work
  return options;
}

ACCEL_RANK_FUNCTION(hybrid_trains_like_one_device) {
  for (const std::optional<ShardingStrategy>& strategy :
       {std::optional<ShardingStrategy>(),
        std::optional(ShardingStrategy::kHybridShard),
        std::optional(ShardingStrategy::kHybridShardZero2)}) {
    expect_trains_like_one_device<optim::AdamW>(
        hybrid(strategy), optim::AdamWOptions(0.01).amsgrad(true));
    expect_trains_like_one_device<optim::SGD>(
        hybrid(strategy), optim::SGDOptions(0.1).momentum(0.9));
  }
}

TEST(HybridSharding, TrainsLikeOneDevice) {
  run_and_expect_success("hybrid_trains_like_one_device", 4, groups(2));
  run_and_expect_success("hybrid_trains_like_one_device", 6, groups(2));
  run_and_expect_success("hybrid_trains_like_one_device", 6, groups(3));
}

ACCEL_RANK_FUNCTION(hybrid_holds_parts) {
  Accelerator accelerator(hybrid());
  const auto mesh = accelerator.device_mesh();
  EXPECT_EQ(mesh.str(), "accel::DeviceMesh(dp_replicate=2, dp_shard=2)");
  EXPECT_EQ(accelerator.data_parallel_rank(), accelerator.process_index() / 2);
  EXPECT_EQ(
      accelerator.data_parallel_shard_rank(), accelerator.process_index() % 2);
  EXPECT_EQ(accelerator.tensor_parallel_rank(), 0);
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  step(&accelerator, net, optimizer, 0);
  const auto& weight = net->table->weight; // 7 rows
  const int64_t rows = accelerator.data_parallel_shard_rank() == 0 ? 4 : 3;
  auto& state = static_cast<optim::AdamParamState&>(
      *optimizer.state().at(weight.unsafeGetTensorImpl()));
  for (const auto& tensor :
       {weight.detach(), weight.grad(), state.exp_avg(), state.exp_avg_sq()}) {
    ASSERT_TRUE(ad::is_distributed(tensor));
    EXPECT_EQ(ad::mesh(tensor), mesh["dp_shard"]);
    EXPECT_EQ(ad::placements(tensor)[0], ad::Shard(0));
    const auto local = ad::to_local(tensor);
    EXPECT_EQ(local.size(0), rows);
    EXPECT_EQ(local.storage().nbytes(), local.nbytes());
    // The groups hold the same, bit for bit.
    const auto others = accelerator.gather(ad::full_tensor(tensor).flatten());
    EXPECT_TRUE(torch::equal(
        others.slice(0, 0, others.size(0) / 2),
        others.slice(0, others.size(0) / 2)));
  }
}

TEST(HybridSharding, EachGroupHoldsAll) {
  run_and_expect_success("hybrid_holds_parts", 4, groups(2));
}

/// What the data set was asked for.
struct Counted : torch::data::datasets::Dataset<Counted> {
  explicit Counted(size_t n, std::vector<int64_t>* asked) : n(n), asked(asked) {}
  torch::data::Example<> get(size_t index) override {
    asked->push_back(static_cast<int64_t>(index));
    const auto x = torch::full({2}, static_cast<double>(index), torch::kDouble);
    return {x, x.sum()};
  }
  std::optional<size_t> size() const override {
    return n;
  }
  size_t n;
  std::vector<int64_t>* asked;
};

ACCEL_RANK_FUNCTION(hybrid_loads_rows) {
  Accelerator accelerator(hybrid());
  const int64_t rank = accelerator.process_index();
  std::vector<int64_t> asked;
  auto loader = data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Counted(11, &asked).map(torch::data::transforms::Stack<>()), 10);
  std::vector<int64_t> sizes;
  for (auto& batch : *loader) {
    const int64_t n = batch.data.size(0);
    sizes.push_back(n);
    // 10 rows: 5 and 5, of which the first has 3; one row is everybody's.
    const int64_t begins[] = {0, 3, 5, 8, 10};
    EXPECT_EQ(
        ad::to_local(batch.data).size(0),
        n == 1 ? 1 : begins[rank + 1] - begins[rank]);
    EXPECT_EQ(
        (batch.data.sum(1) * batch.target).sum().item<double>(),
        n == 1 ? 400 : 4 * 285);
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{10, 1}));
  const std::vector<std::vector<int64_t>> rows{
      {0, 1, 2, 10}, {3, 4, 10}, {5, 6, 7, 10}, {8, 9, 10}};
  EXPECT_EQ(asked, rows[rank]);
  // Cut by hand as by the loader, in any dimension.
  const auto whole = torch::arange(30, torch::kDouble).view({3, 10});
  const auto cut = accelerator.distribute(whole, 1);
  EXPECT_EQ(ad::placements(cut).size(), 2u);
  EXPECT_TRUE(torch::equal(ad::full_tensor(cut), whole));
}

TEST(HybridSharding, LoadersReadEachProcessesRows) {
  run_and_expect_success("hybrid_loads_rows", 4, groups(2));
}

/// A stream, which process 0 reads for all.
struct Stream : torch::data::datasets::StatefulDataset<Stream, Tensor> {
  explicit Stream(std::vector<int64_t> sizes) : sizes(std::move(sizes)) {}
  std::optional<Tensor> get_batch(size_t) override {
    return next == sizes.size()
        ? std::nullopt
        : std::optional<Tensor>(torch::arange(sizes[next++], torch::kDouble));
  }
  std::optional<size_t> size() const override {
    return std::nullopt;
  }
  void reset() override {
    next = 0;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  std::vector<int64_t> sizes;
  size_t next = 0;
};

ACCEL_RANK_FUNCTION(hybrid_deals_rows) {
  Accelerator accelerator(hybrid());
  const std::vector<int64_t> sizes{10, 3, 1};
  auto loader = data::make_data_loader(Stream(sizes), 5);
  size_t i = 0;
  for (auto& batch : *loader) {
    const auto whole = torch::arange(sizes[i], torch::kDouble);
    EXPECT_TRUE(torch::equal(ad::full_tensor(batch), whole)) << i;
    EXPECT_EQ(ad::is_distributed(batch), sizes[i] > 1);
    ++i;
  }
  EXPECT_EQ(i, sizes.size());
}

TEST(HybridSharding, StreamsAreDealtToTheMesh) {
  run_and_expect_success("hybrid_deals_rows", 4, groups(2));
}

/// What a group finds of its own rows is not what the program reads.
ACCEL_RANK_FUNCTION(hybrid_reads_values) {
  Accelerator accelerator(hybrid());
  const auto whole = torch::arange(20, torch::kDouble).view({10, 2});
  const auto one = accelerator.distribute(whole);
  for (int64_t row = 0; row < 10; ++row) {
    auto other = whole.clone();
    other[row][1] = -1;
    EXPECT_FALSE(torch::equal(one, accelerator.distribute(other)));
  }
  EXPECT_TRUE(torch::equal(one, accelerator.distribute(whole.clone())));
}

TEST(HybridSharding, ValuesAreReadOfTheWholeTensor) {
  run_and_expect_success("hybrid_reads_values", 4, groups(2));
}

/// Trains HYBRID_STEPS from step HYBRID_BEGIN and writes a checkpoint.
ACCEL_RANK_FUNCTION(hybrid_checkpoint) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto folder = variable("SHARDED_FOLDER") + "/";
  Accelerator accelerator(
      variable("HYBRID_GROUPS").empty()
          ? AcceleratorOptions().match_single_device(true)
          : hybrid());
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  if (!variable("HYBRID_FROM").empty()) {
    accelerator.load_state(folder + variable("HYBRID_FROM"));
  }
  const int64_t begin = std::stol(variable("HYBRID_BEGIN"));
  for (int64_t i = begin; i < begin + 3; ++i) {
    const double loss = step(&accelerator, net, optimizer, i);
    if (accelerator.is_main_process()) {
      char text[40];
      std::snprintf(text, sizeof text, "%.12f\n", loss);
      std::cout << text;
    }
  }
  accelerator.save_state(folder + variable("HYBRID_TO"));
}

TEST(HybridSharding, CheckpointsFitAnyMesh) {
  const Folder folder;
  const auto go = [&](int processes, const char* groups, const char* from,
                      const char* to, int begin) {
    return run_and_expect_success(
               "hybrid_checkpoint", processes,
               folder.options({{"HYBRID_GROUPS", groups}, {"HYBRID_FROM", from},
                               {"HYBRID_TO", to},
                               {"HYBRID_BEGIN", std::to_string(begin)}}))
        .at(0)
        .output;
  };
  const auto first = go(1, "", "", "plain", 0);
  const auto rest = go(1, "", "plain", "plain_end", 3);
  EXPECT_EQ(go(4, "2", "", "four", 0), first);
  EXPECT_EQ(go(4, "2", "plain", "a", 3), rest);
  EXPECT_EQ(go(1, "", "four", "b", 3), rest);
  EXPECT_EQ(go(6, "3", "four", "c", 3), rest);
  EXPECT_EQ(go(2, "1", "four", "d", 3), rest);
}

// ---- What is asked for.

ACCEL_RANK_FUNCTION(mesh_of_too_many) {
  expect_error(
      [] {
        Accelerator accelerator(
            AcceleratorOptions().match_single_device(true).parallelism_config(
                ParallelismConfig().dp_replicate_size(2).dp_shard_size(2)));
      },
      "parallelism_config asks for 4 processes (dp_replicate 2, dp_shard 2), but "
      "there are 3");
}

TEST(ParallelismConfig, MustFitTheProcesses) {
  run_and_expect_success("mesh_of_too_many", 3);
}

TEST(ParallelismConfig, ReadsAcceleratesVariables) {
  const auto match = AcceleratorOptions().match_single_device(true);
  EXPECT_FALSE(resolve(match).parallelism.has_value());
  ::setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "3", 1);
  EXPECT_FALSE(resolve(match).parallelism.has_value());
  ::setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true", 1);
  EXPECT_EQ(resolve(match).parallelism->dp_shard, 3);
  EXPECT_EQ(resolve(match).fsdp, ShardingStrategy::kFullShard);
  // What the program says counts.
  auto two = match;
  two.parallelism_config(ParallelismConfig().dp_shard_size(2));
  EXPECT_EQ(resolve(two).parallelism->dp_shard, 2);
  ::setenv("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "5", 1);
  EXPECT_EQ(resolve(two).parallelism->product(), 10);
  for (const char* name :
       {"ACCELERATE_USE_PARALLELISM_CONFIG", "PARALLELISM_CONFIG_DP_SHARD_SIZE",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"}) {
    ::unsetenv(name);
  }
}

TEST(ParallelismConfig, RefusesWhatItCannotDo) {
  const auto with = [](const ParallelismConfig& config,
                       const FullyShardedDataParallelPlugin* plugin = nullptr) {
    auto options =
        AcceleratorOptions().match_single_device(true).parallelism_config(config);
    if (plugin != nullptr) {
      options.fsdp_plugin(*plugin);
    }
    (void)resolve(options);
  };
  expect_error([&] { with(ParallelismConfig().dp_shard_size(0)); }, "dp_shard_size is 0");
  const auto full =
      FullyShardedDataParallelPlugin().sharding_strategy(ShardingStrategy::kFullShard);
  expect_error([&] { with(ParallelismConfig().dp_replicate_size(2), &full); },
       "the sharding strategy is FULL_SHARD (fsdp_plugin, or zero_stage of deepspeed_plugin), "
       "and dp_shard_size of parallelism_config is 1");
  const auto none =
      FullyShardedDataParallelPlugin().sharding_strategy(ShardingStrategy::kNoShard);
  expect_error([&] { with(ParallelismConfig().dp_shard_size(2), &none); },
       "the sharding strategy is NO_SHARD");
  expect_error(
      [] {
        (void)resolve(AcceleratorOptions().parallelism_config(
            ParallelismConfig().dp_shard_size(2)));
      },
      "match_single_device is false");
  ::setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true", 1);
  ::setenv("PARALLELISM_CONFIG_CP_SIZE", "two", 1);
  expect_error([] { (void)resolve(AcceleratorOptions()); }, "PARALLELISM_CONFIG_CP_SIZE");
  ::unsetenv("PARALLELISM_CONFIG_CP_SIZE");
  ::unsetenv("ACCELERATE_USE_PARALLELISM_CONFIG");
}

} // namespace
} // namespace accel::test
