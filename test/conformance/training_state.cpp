// What one process counts and draws, against the recorded traces: gradient
// scaling, accumulation windows, seedable orders.

#include "golden_files.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace {

using accel::AcceleratorOptions;
using accel::GradientState;
using accel::GradScaler;
using accel::GradScalerOptions;
using accel::test::golden;
using nlohmann::json;

/// "0.5", "inf" …
double number_of(const json& value) {
  return value.is_string() ? std::stod(value.get<std::string>())
                           : value.get<double>();
}

/// The records of all files, whatever their number of processes.
json recorded(const std::string& what) {
  auto all = json::array();
  for (const auto& name : accel::test::golden_files("mp", ".json")) {
    for (const auto& record : golden(name).at(what)) {
      all.push_back(record);
    }
  }
  EXPECT_FALSE(all.empty());
  return all;
}

struct Count : torch::data::datasets::BatchDataset<Count, std::vector<size_t>> {
  explicit Count(size_t size) : count(size) {}
  std::vector<size_t> get_batch(torch::ArrayRef<size_t> indices) override {
    return indices.vec();
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
};

} // namespace

TEST(RecordedGradScaler, ScalesSkipsAndSteps) {
  int steps = 0;
  for (const auto& record : golden("grad_scaler.json")) {
    GradScaler scaler(GradScalerOptions()
                          .init_scale(record.at("init_scale"))
                          .growth_factor(record.at("growth_factor"))
                          .backoff_factor(record.at("backoff_factor"))
                          .growth_interval(record.at("growth_interval")));
    auto parameter = torch::tensor({1.0f, 2.0f}).set_requires_grad(true);
    torch::optim::SGD optimizer({parameter}, torch::optim::SGDOptions(0.1));
    for (const auto& expected : record.at("steps")) {
      SCOPED_TRACE(expected.dump());
      optimizer.zero_grad();
      scaler.scale((parameter * torch::tensor({0.5f, -1.0f})).sum()).backward();
      if (expected.at("overflow")) {
        parameter.mutable_grad()[0] = std::numeric_limits<float>::infinity();
      }
      scaler.unscale_(optimizer);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(
            parameter.grad()[i].item<float>(),
            static_cast<float>(number_of(expected.at("unscaled_grad").at(i))));
      }
      const bool stepped = scaler.step(optimizer, [&] { optimizer.step(); });
      scaler.update();
      EXPECT_EQ(!stepped, expected.at("skipped").get<bool>());
      EXPECT_EQ(scaler.get_scale(), expected.at("scale").get<double>());
      EXPECT_EQ(
          scaler.growth_tracker(), expected.at("growth_tracker").get<int64_t>());
      for (int i = 0; i < 2; ++i) {
        EXPECT_FLOAT_EQ(
            parameter[i].item<float>(),
            expected.at("param").at(i).get<float>());
      }
      // A scaler that begins where this one stands goes on alike.
      GradScaler other;
      other.load_state_dict(scaler.state_dict());
      scaler = std::move(other);
      ++steps;
    }
  }
  EXPECT_GT(steps, 50);
}

TEST(RecordedGradScaler, StateDict) {
  for (const auto& record : recorded("scaler")) {
    GradScaler scaler(GradScalerOptions()
                          .init_scale(record.at("init"))
                          .growth_factor(record.at("growth"))
                          .backoff_factor(record.at("backoff"))
                          .growth_interval(record.at("interval")));
    auto parameter = torch::ones({1}).set_requires_grad(true);
    torch::optim::SGD optimizer({parameter}, torch::optim::SGDOptions(0.1));
    for (const auto& now : record.at("trace_inf_scale_tracker_stepped")) {
      SCOPED_TRACE(now.dump());
      scaler.scale(parameter.sum()).backward();
      if (now.at(0) != 0) {
        parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
      }
      const bool stepped = scaler.step(optimizer, [&] { optimizer.step(); });
      scaler.update();
      optimizer.zero_grad();
      EXPECT_EQ(scaler.get_scale(), now.at(1).get<double>());
      EXPECT_EQ(scaler.growth_tracker(), now.at(2).get<int64_t>());
      EXPECT_EQ(stepped, now.at(3).get<bool>());
    }
    const auto& expected = record.at("state_dict");
    const auto state = scaler.state_dict();
    EXPECT_EQ(state.scale, expected.at("scale").get<double>());
    EXPECT_EQ(state.growth_factor, expected.at("growth_factor").get<double>());
    EXPECT_EQ(state.backoff_factor, expected.at("backoff_factor").get<double>());
    EXPECT_EQ(
        state.growth_interval, expected.at("growth_interval").get<int64_t>());
    EXPECT_EQ(
        state.growth_tracker, expected.at("_growth_tracker").get<int64_t>());
  }
}

TEST(RecordedAccumulation, WindowsBeginAndEnd) {
  for (const auto& record : recorded("accumulate")) {
    SCOPED_TRACE(record.dump());
    accel::Accelerator accelerator(
        AcceleratorOptions()
            .cpu(true)
            .gradient_accumulation_steps(record.at("k"))
            .sync_with_dataloader(record.at("sync_with_dataloader")));
    auto loader =
        accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
            Count(record.at("batches").get<size_t>()), 1);
    auto trace = json::array();
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : *loader) {
        (void)batch;
        auto step = accelerator.accumulate();
        trace.push_back(
            {GradientState::get().step, accelerator.sync_gradients()});
      }
    }
    EXPECT_EQ(trace, record.at("trace"));
  }
}

TEST(RecordedOrders, SeedableRandomSampler) {
  for (const auto& record : recorded("seedable")) {
    SCOPED_TRACE(record.dump());
    const size_t size = record.at("n");
    auto loader = accel::data::make_data_loader(
        Count(size),
        accel::data::SeedableRandomSampler(
            size, record.at("seed").get<uint64_t>()),
        2);
    for (const auto& expected : record.at("epochs")) {
      // Whatever the program draws in between does not matter.
      torch::rand({3});
      std::vector<size_t> order;
      for (auto& batch : *loader) {
        order.insert(order.end(), batch.begin(), batch.end());
      }
      EXPECT_EQ(order, expected.get<std::vector<size_t>>());
    }
  }
}

TEST(RecordedSplits, BetweenProcesses) {
  for (const auto& name : accel::test::golden_files("mp", ".json")) {
    const int64_t world = golden(name).at("P");
    for (const auto& record : golden(name).at("split_between")) {
      SCOPED_TRACE(record.dump());
      std::vector<int64_t> list(record.at("n").get<size_t>());
      std::iota(list.begin(), list.end(), 0);
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto expected =
            record.at("out").at(rank).get<std::vector<int64_t>>();
        if (record.at("kind") == "list") {
          EXPECT_EQ(
              accel::split_between_processes(
                  list, rank, world, record.at("pad")),
              expected);
        } else {
          ASSERT_EQ(record.at("kind"), "tensor");
          EXPECT_TRUE(accel::split_between_processes(
                          torch::tensor(list, torch::kLong),
                          rank,
                          world,
                          record.at("pad"))
                          .equal(torch::tensor(expected, torch::kLong)));
        }
      }
    }
  }
}
