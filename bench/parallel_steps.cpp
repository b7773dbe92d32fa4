// What a training step costs where the model is divided between the processes,
// as a ratio to plain data parallelism (the same batch, shared out, with the
// whole model on every process) in the same run: `rounds` times some steps of
// each; the medians are compared. With `--prefetch` it is compared with the same strategy
// that gathers nothing ahead, with `--activation-checkpointing` with the same strategy
// and units without it (as one process as well).
//
//   accel launch -n 2 --output main -- ./parallel_steps
//       [--model transformer|mlp]
//       [--strategy FULL_SHARD|SHARD_GRAD_OP|TENSOR_PARALLEL]
//       [--optimizer adam|sgd] [--rounds N] [--steps N]
//       [--prefetch BACKWARD_PRE|BACKWARD_POST]
//       [--activation-checkpointing LAYERS|CHILDREN]
//
// `transformer`: 40 million parameters in 12 layers, 8 sentences of 32 words.
// `mlp`: 10 million in four, 16 rows. Of activation checkpointing LAYERS makes a unit of
// each layer of the transformer, CHILDREN leaves the units to accel.

#include "models.h"

#include <accel/accel.h>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

namespace nn = torch::nn;

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    words = register_module("words", nn::Embedding(4000, 512));
    layers = register_module(
        "layers",
        nn::TransformerEncoder(nn::TransformerEncoderOptions(
            nn::TransformerEncoderLayer(
                nn::TransformerEncoderLayerOptions(512, 8).dropout(0)),
            12)));
    out = register_module("out", nn::Linear(512, 64));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(layers(words(x).transpose(0, 1)).transpose(0, 1));
  }
  nn::Embedding words = nullptr;
  nn::TransformerEncoder layers = nullptr;
  nn::Linear out = nullptr;
};
TORCH_MODULE(Transformer);

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Plugin = accel::FullyShardedDataParallelPlugin;

/// `strategy` empty: data parallelism. `plugin` has what belongs to FSDP beside that.
accel::AcceleratorOptions options_of(const std::string& strategy, Plugin plugin) {
  accel::AcceleratorOptions options;
  options.match_single_device(true);
  if (strategy == "TENSOR_PARALLEL") {
    const char* processes = std::getenv("WORLD_SIZE");
    options.torch_tp_plugin(accel::TorchTensorParallelPlugin().tp_size(
        processes == nullptr ? 1 : std::atoi(processes)));
  } else if (!strategy.empty()) {
    options.fsdp_plugin(plugin.sharding_strategy(
        strategy == "FULL_SHARD" ? accel::ShardingStrategy::kFullShard
                                 : accel::ShardingStrategy::kShardGradOp));
  }
  return options;
}

/// Milliseconds of one step.
struct Spent {
  double clock;
  /// Of the processor, of this process: on a busy machine it says more.
  double processor;
};

template <typename Optimizer, typename Model>
Spent milliseconds_per_step(
    const std::string& strategy,
    const Plugin& plugin,
    Model model,
    const torch::Tensor& batch,
    int steps) {
  accel::Accelerator accelerator(options_of(strategy, plugin));
  accel::AcceleratedOptimizer<Optimizer> optimizer(model->parameters(), 1e-3);
  accelerator.prepare(model, optimizer);
  const auto step = [&] {
    optimizer.zero_grad();
    const auto loss =
        model->forward(accelerator.distribute(batch)).pow(2).mean();
    accelerator.backward(loss);
    optimizer.step();
  };
  step();
  step();
  accelerator.wait_for_everyone();
  const auto start = std::chrono::steady_clock::now();
  const auto processor = std::clock();
  for (int i = 0; i < steps; ++i) {
    step();
  }
  const double computed =
      1e3 * static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  accelerator.wait_for_everyone();
  const std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - start;
  return {spent.count() / steps, computed / steps};
}

template <typename Optimizer>
Spent milliseconds_per_step(
    const std::string& strategy,
    const Plugin& plugin,
    const std::string& model,
    int steps) {
  torch::manual_seed(0);
  return model == "mlp"
             ? milliseconds_per_step<Optimizer>(
                   strategy, plugin, bench::mlp(), torch::randn({16, 1024}),
                   steps)
             : milliseconds_per_step<Optimizer>(
                   strategy, plugin, Transformer(),
                   torch::randint(4000, {8, 32}), steps);
}

} // namespace

int main(int argc, char** argv) {
  std::string which = "transformer";
  std::string name = "FULL_SHARD";
  std::string optimizer = "sgd";
  std::string prefetch;
  std::string checkpointing;
  int rounds = 5;
  int steps = 4;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string arg = argv[i];
    if (arg == "--model") {
      which = argv[i + 1];
    } else if (arg == "--strategy") {
      name = argv[i + 1];
    } else if (arg == "--optimizer") {
      optimizer = argv[i + 1];
    } else if (arg == "--prefetch") {
      prefetch = argv[i + 1];
    } else if (arg == "--activation-checkpointing") {
      checkpointing = argv[i + 1];
    } else if (arg == "--rounds") {
      rounds = std::max(1, std::atoi(argv[i + 1]));
    } else if (arg == "--steps") {
      steps = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "parallel_steps: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (which != "transformer" && which != "mlp") {
    std::fprintf(stderr, "parallel_steps: no model '%s'\n", which.c_str());
    return 2;
  }
  if (name != "FULL_SHARD" && name != "SHARD_GRAD_OP" &&
      name != "TENSOR_PARALLEL") {
    std::fprintf(stderr, "parallel_steps: no strategy '%s'\n", name.c_str());
    return 2;
  }
  if (optimizer != "adam" && optimizer != "sgd") {
    std::fprintf(
        stderr, "parallel_steps: no optimizer '%s'\n", optimizer.c_str());
    return 2;
  }
  if (!prefetch.empty() && prefetch != "BACKWARD_PRE" &&
      prefetch != "BACKWARD_POST") {
    std::fprintf(
        stderr, "parallel_steps: no prefetch '%s'\n", prefetch.c_str());
    return 2;
  }
  if (!checkpointing.empty() && checkpointing != "LAYERS" &&
      checkpointing != "CHILDREN") {
    std::fprintf(
        stderr, "parallel_steps: no activation checkpointing of '%s'\n",
        checkpointing.c_str());
    return 2;
  }
  if (!prefetch.empty() && !checkpointing.empty()) {
    std::fprintf(
        stderr, "parallel_steps: one of --prefetch and --activation-checkpointing\n");
    return 2;
  }
  if (name == "TENSOR_PARALLEL" && !(prefetch + checkpointing).empty()) {
    std::fprintf(stderr, "parallel_steps: TENSOR_PARALLEL has no FSDP to set\n");
    return 2;
  }
  torch::set_num_threads(1);
  const auto run = [&](const std::string& strategy, const Plugin& plugin) {
    return optimizer == "adam" ? milliseconds_per_step<torch::optim::Adam>(
                                     strategy, plugin, which, steps)
                               : milliseconds_per_step<torch::optim::SGD>(
                                     strategy, plugin, which, steps);
  };
  // What is measured, and the same strategy without it.
  Plugin asked;
  Plugin without;
  std::string without_name = "data parallelism";
  std::string asked_name = name;
  if (!prefetch.empty()) {
    without.forward_prefetch(false).backward_prefetch(
        accel::BackwardPrefetch::kNoPrefetch);
    asked.forward_prefetch(true).backward_prefetch(
        prefetch == "BACKWARD_PRE" ? accel::BackwardPrefetch::kBackwardPre
                                   : accel::BackwardPrefetch::kBackwardPost);
    without_name = "without prefetching";
    asked_name = prefetch;
  } else if (!checkpointing.empty()) {
    if (checkpointing == "LAYERS") {
      without.auto_wrap_policy(accel::AutoWrapPolicy::kTransformerBasedWrap);
      asked.auto_wrap_policy(accel::AutoWrapPolicy::kTransformerBasedWrap);
    }
    asked.activation_checkpointing(true);
    without_name = "without activation checkpointing";
    asked_name = "with (" + checkpointing + ")";
  }
  const bool beside_data_parallelism = prefetch.empty() && checkpointing.empty();
  std::vector<double> plain;
  std::vector<double> divided;
  std::vector<double> plain_processor;
  std::vector<double> divided_processor;
  for (int round = 0; round < rounds; ++round) {
    const auto one = run(beside_data_parallelism ? "" : name, without);
    const auto other = run(name, asked);
    plain.push_back(one.clock);
    divided.push_back(other.clock);
    plain_processor.push_back(one.processor);
    divided_processor.push_back(other.processor);
  }
  if (std::getenv("RANK") == nullptr ||
      std::string(std::getenv("RANK")) == "0") {
    std::printf(
        "%s: %s %.1f ms/step, %s %.1f ms/step: %.3f (least: %.3f; time of the "
        "processor: %.3f)\n",
        which.c_str(),
        without_name.c_str(),
        median(plain),
        asked_name.c_str(),
        median(divided),
        median(divided) / median(plain),
        *std::min_element(divided.begin(), divided.end()) /
            *std::min_element(plain.begin(), plain.end()),
        median(divided_processor) / median(plain_processor));
  }
  return 0;
}
