// A small language model in parts, against PyTorch's engines on the same model:
// record/parallel_training.py has recorded them on two processes.

#include "golden_files.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::CpCommStrategy;
using accel::ParallelismConfig;
using accel::TorchContextParallelConfig;
using accel::test::golden;
using torch::Tensor;
namespace nn = torch::nn;

constexpr int64_t kSamples = 4, kTime = 6, kWords = 11, kFeatures = 8, kHeads = 2;

struct RecordedAttention : nn::Module {
  RecordedAttention() {
    q = register_module("q", nn::Linear(kFeatures, kFeatures));
    k = register_module("k", nn::Linear(kFeatures, kFeatures));
    v = register_module("v", nn::Linear(kFeatures, kFeatures));
    out = register_module("out", nn::Linear(kFeatures, kFeatures));
  }
  Tensor forward(const Tensor& x) {
    const auto split = [](const Tensor& y) {
      return y.unflatten(-1, {kHeads, kFeatures / kHeads}).transpose(1, 2);
    };
    const auto y = at::scaled_dot_product_attention(
        split(q->forward(x)), split(k->forward(x)), split(v->forward(x)), {}, 0,
        /*is_causal=*/true);
    return out->forward(y.transpose(1, 2).flatten(2));
  }
  nn::Linear q = nullptr, k = nullptr, v = nullptr, out = nullptr;
};

struct RecordedReader : nn::Module {
  RecordedReader() {
    table = register_module("table", nn::Embedding(kWords, kFeatures));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kFeatures})));
    attention = register_module("attention", std::make_shared<RecordedAttention>());
    up = register_module("up", nn::Linear(kFeatures, 2 * kFeatures));
    down = register_module("down", nn::Linear(2 * kFeatures, kFeatures));
    head = register_module(
        "head", nn::Linear(nn::LinearOptions(kFeatures, kWords).bias(false)));
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    int64_t i = 0;
    for (auto& parameter : parameters()) {
      const auto numbers = torch::arange(parameter.numel(), torch::kDouble);
      parameter.copy_(
          torch::sin(numbers * 0.7 + i++).view(parameter.sizes()) * 0.4);
    }
  }
  Tensor forward(const Tensor& words) {
    auto x = table->forward(words);
    x = x + attention->forward(norm->forward(x));
    x = x + down->forward(torch::gelu(up->forward(norm->forward(x))));
    return head->forward(x);
  }
  nn::Embedding table = nullptr;
  nn::LayerNorm norm = nullptr;
  std::shared_ptr<RecordedAttention> attention;
  nn::Linear up = nullptr, down = nullptr, head = nullptr;
};

AcceleratorOptions options_of(const std::string& how) {
  auto options = AcceleratorOptions().match_single_device(true);
  if (how == "FULL_SHARD") {
    options.fsdp_plugin(accel::FullyShardedDataParallelPlugin());
  } else if (how == "tensor") {
    options.parallelism_config(ParallelismConfig().tp_size(2));
    options.torch_tp_plugin(accel::TorchTensorParallelPlugin().plan(
        {{"attention.q", "colwise"},
         {"attention.k", "colwise"},
         {"attention.v", "colwise"},
         {"attention.out", "rowwise"},
         {"up", "colwise"},
         {"down", "rowwise"}}));
  } else if (how == "allgather" || how == "alltoall") {
    options.parallelism_config(ParallelismConfig().cp_size(2).cp_handler(
        TorchContextParallelConfig().cp_comm_strategy(
            how == "alltoall" ? CpCommStrategy::kAlltoall
                              : CpCommStrategy::kAllgather)));
  } else if (how == "sequence") {
    options.parallelism_config(ParallelismConfig().sp_size(2));
  }
  return options;
}

/// As the variable HOW says, against what RECORDED says.
ACCEL_RANK_FUNCTION(recorded_parallel_training) {
  const std::string how = std::getenv("HOW");
  const auto& expected = golden("parallel_training.json")[std::getenv("RECORDED")];
  const int64_t time = expected.value("time", kTime);
  Accelerator accelerator(options_of(how));
  const auto net = std::make_shared<RecordedReader>();
  accel::AcceleratedOptimizer<torch::optim::AdamW> optimizer(
      net->parameters(), torch::optim::AdamWOptions(0.02));
  accelerator.prepare(net, optimizer);
  for (size_t step = 0; step < expected["losses"].size(); ++step) {
    const auto i = static_cast<int64_t>(step);
    auto words = (torch::arange(kSamples * time) * (i + 3) + i)
                     .remainder(kWords)
                     .view({kSamples, time});
    auto following = (words * 3 + 1).remainder(kWords);
    words = accelerator.distribute(words);
    following = accelerator.distribute(following);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(
        net->forward(words).flatten(0, 1), following.flatten());
    accelerator.backward(loss);
    optimizer.step();
    EXPECT_NEAR(
        loss.item<double>(), expected["losses"][step].get<double>(), 1e-9)
        << how << ", step " << step;
  }
  const auto state = accelerator.get_state_dict(*net);
  std::vector<std::string> names;
  for (const auto& item : state) {
    names.push_back(item.key());
    const auto values =
        expected["values"][item.key()].get<std::vector<double>>();
    const auto sizes =
        expected["sizes"][item.key()].get<std::vector<int64_t>>();
    ASSERT_EQ(item.value().sizes(), at::IntArrayRef(sizes)) << item.key();
    EXPECT_TRUE(torch::allclose(
        item.value().flatten(), torch::tensor(values, torch::kDouble), 1e-9, 1e-9))
        << how << ", " << item.key();
  }
  if (accelerator.is_main_process()) {
    EXPECT_EQ(names, expected["names"].get<std::vector<std::string>>());
  }
}

void expect_as_recorded(const char* how, const char* recorded) {
  accel::test::RunOptions options;
  options.environment["HOW"] = how;
  options.environment["RECORDED"] = recorded;
  options.timeout = std::chrono::seconds(240); // a machine with other work
  accel::test::run_and_expect_success("recorded_parallel_training", 2, options);
}

TEST(ParallelTraining, FullShardAsFsdp2) {
  expect_as_recorded("FULL_SHARD", "fsdp2");
}

TEST(ParallelTraining, TensorParallelAsDTensor) {
  expect_as_recorded("tensor", "tensor_parallel");
}

TEST(ParallelTraining, ContextParallelAsPythonsInBothOrders) {
  // PyTorch evens out the work: it gives each process positions of both ends.
  expect_as_recorded("allgather", "context_allgather");
  expect_as_recorded("allgather", "context_allgather_in_order");
}

TEST(ParallelTraining, RingAsPythonsInBothOrders) {
  expect_as_recorded("alltoall", "context_alltoall");
  expect_as_recorded("alltoall", "context_alltoall_in_order");
}

TEST(ParallelTraining, UlyssesAsOneProcess) {
  expect_as_recorded("sequence", "one_process");
}

} // namespace
