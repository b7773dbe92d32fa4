// Whole training loops in Accelerate's way of sharing: which samples, which
// gradients, which steps, and what evaluation gathers.

#include "golden_files.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::golden;
using nlohmann::json;
using torch::data::DataLoaderOptions;
using torch::data::samplers::SequentialSampler;

/// Sample i is (i / n, i).
struct Line : torch::data::datasets::Dataset<Line> {
  explicit Line(int64_t size) : count(size) {}
  torch::data::Example<> get(size_t index) override {
    return {
        torch::full({1}, static_cast<double>(index) / count, torch::kFloat),
        torch::tensor(static_cast<int64_t>(index))};
  }
  std::optional<size_t> size() const override {
    return count;
  }
  int64_t count;
};

/// Python's StepLR: LibTorch's counts its first step as number 0.
class StepLR : public torch::optim::LRScheduler {
 public:
  StepLR(torch::optim::Optimizer& optimizer, unsigned size, double gamma)
      : LRScheduler(optimizer), size_(size), gamma_(gamma) {}

 private:
  std::vector<double> get_lrs() override {
    auto rates = get_current_lrs();
    if ((step_count_ + 1) % size_ == 0) {
      for (auto& rate : rates) {
        rate *= gamma_;
      }
    }
    return rates;
  }

  unsigned size_;
  double gamma_;
};

bool variable_is_on(const char* name) {
  return std::string(std::getenv(name)) == "1";
}

json list(const torch::Tensor& ids) {
  const auto values = ids.contiguous();
  const auto* first = values.data_ptr<int64_t>();
  return std::vector<int64_t>(first, first + values.numel());
}

void expect_number(const json& expected, double actual, const char* what) {
  const double value = expected.get<double>();
  EXPECT_NEAR(actual, value, 2e-6 * std::max(1.0, std::abs(value))) << what;
}

void follow(Accelerator& accelerator, const json& record) {
  const auto& expected =
      record.at("per_rank").at(accelerator.process_index());
  auto& state = GradientState::get();
  state.step = 0;
  state.sync_gradients = true;
  state.num_steps = record.at("gradient_accumulation_steps");
  state.adjust_scheduler = record.at("adjust_scheduler");
  state.sync_with_dataloader = record.at("sync_with_dataloader");

  const int64_t size = record.at("dataset_size");
  const auto make_loader = [&] {
    return accel::data::make_data_loader<SequentialSampler>(
        Line(size).map(torch::data::transforms::Stack<>()),
        DataLoaderOptions(record.at("batch_size").get<size_t>()));
  };
  torch::nn::Linear model(1, 1);
  {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(0.5);
    model->bias.fill_(-0.25);
  }
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  accelerator.prepare(model, optimizer);
  accel::AcceleratedScheduler<StepLR> scheduler(optimizer, 2, 0.5);

  auto loader = make_loader();
  size_t number = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      ASSERT_LT(number, expected.at("trace").size());
      const auto& now = expected.at("trace").at(number++);
      SCOPED_TRACE(now.dump());
      auto step = accelerator.accumulate(model);
      const auto loss =
          torch::mse_loss(model->forward(batch.data), batch.data * 2 + 1);
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) {
        const double norm =
            accelerator.clip_grad_norm_(model->parameters(), 1.0);
        expect_number(now.at("grad_norm"), norm, "grad_norm");
      }
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();

      EXPECT_EQ(list(batch.target), now.at("ids"));
      expect_number(now.at("loss"), loss.item<double>(), "loss");
      EXPECT_EQ(accelerator.sync_gradients(), now.at("sync_gradients"));
      EXPECT_EQ(state.end_of_dataloader(), now.at("end_of_dataloader"));
      EXPECT_EQ(state.remainder(), now.at("remainder"));
      expect_number(
          now.at("lr"), optimizer.param_groups()[0].options().get_lr(), "lr");
      expect_number(
          now.at("weight"), model->weight.item<double>(), "weight");
      expect_number(now.at("bias"), model->bias.item<double>(), "bias");
    }
  }
  EXPECT_EQ(number, expected.at("trace").size());

  auto evaluation = make_loader();
  auto seen = json::array();
  for (auto& batch : *evaluation) {
    seen.push_back(
        {{"ids", list(batch.target)},
         {"gathered", list(accelerator.gather(batch.target))},
         {"gathered_for_metrics",
          list(accelerator.gather_for_metrics(batch.target))}});
  }
  EXPECT_EQ(seen, expected.at("eval"));
}

} // namespace

ACCEL_RANK_FUNCTION(training_loops) {
  const bool split = variable_is_on("TEST_SPLIT_BATCHES");
  const bool even = variable_is_on("TEST_EVEN_BATCHES");
  const bool with_optimizer = variable_is_on("TEST_STEP_WITH_OPTIMIZER");
  Accelerator accelerator(
      AcceleratorOptions()
          .split_batches(split)
          .even_batches(even)
          .step_scheduler_with_optimizer(with_optimizer));
  const auto file = "training_loop_" +
      std::to_string(accelerator.num_processes()) + "p.json";
  int64_t followed = 0;
  for (const auto& record : golden(file)) {
    if (record.at("split_batches") != split ||
        record.at("even_batches") != even ||
        record.at("step_scheduler_with_optimizer") != with_optimizer) {
      continue;
    }
    ++followed;
    auto options = record;
    options.erase("per_rank");
    SCOPED_TRACE(options.dump());
    follow(accelerator, record);
  }
  EXPECT_GT(followed, 0);
}

TEST(TrainingLoop, FollowsAccelerates) {
  for (const auto& name :
       accel::test::golden_files("training_loop_", "p.json")) {
    // What cannot change while the program runs.
    std::set<std::tuple<bool, bool, bool>> kinds;
    for (const auto& record : golden(name)) {
      kinds.emplace(
          record.at("split_batches"),
          record.at("even_batches"),
          record.at("step_scheduler_with_optimizer"));
    }
    for (const auto& [split, even, with_optimizer] : kinds) {
      accel::test::RunOptions options;
      options.timeout = std::chrono::seconds(120);
      options.environment["TEST_SPLIT_BATCHES"] = split ? "1" : "0";
      options.environment["TEST_EVEN_BATCHES"] = even ? "1" : "0";
      options.environment["TEST_STEP_WITH_OPTIMIZER"] =
          with_optimizer ? "1" : "0";
      accel::test::run_and_expect_success(
          "training_loops",
          golden(name).at(0).at("num_processes"),
          options);
    }
  }
}
