// gather, reduce and pad_across_processes against what Accelerate computed, with
// real processes; every recorded number of processes that is there.

#include "golden_files.h"
#include "multiprocess.h"

#include <accel/accelerator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::golden;
using nlohmann::json;

torch::Tensor tensor_of(const json& value) {
  if (!value.is_array()) {
    return torch::tensor(value.get<double>(), torch::kDouble);
  }
  std::vector<torch::Tensor> parts;
  for (const auto& part : value) {
    parts.push_back(tensor_of(part));
  }
  return torch::stack(parts);
}

void expect_equal(const torch::Tensor& actual, const json& expected) {
  const auto tensor = tensor_of(expected);
  ASSERT_EQ(actual.sizes(), tensor.sizes());
  EXPECT_TRUE(torch::allclose(actual, tensor, 1e-6, 0)) << actual;
}

} // namespace

ACCEL_RANK_FUNCTION(follows_recorded_operations) {
  Accelerator accelerator(AcceleratorOptions().cpu(true));
  const auto rank = static_cast<size_t>(accelerator.process_index());
  const auto& all = golden(
      "operations_" + std::to_string(accelerator.num_processes()) + "p.json");
  int compared = 0;
  for (const auto& record : all.at("gather")) {
    const auto& own = record.at("per_rank").at(rank);
    expect_equal(accelerator.gather(tensor_of(own.at("input"))), own.at("output"));
    ++compared;
  }
  for (const auto& record : all.at("pad_across_processes")) {
    SCOPED_TRACE(record.dump());
    const auto& own = record.at("per_rank").at(rank);
    expect_equal(
        accelerator.pad_across_processes(
            tensor_of(own.at("input")),
            record.at("dim"),
            record.at("pad_index"),
            record.at("pad_first")),
        own.at("output"));
    ++compared;
  }
  int64_t deviations = 0;
  for (const auto& record : all.at("reduce")) {
    SCOPED_TRACE(record.dump());
    const auto& own = record.at("per_rank").at(rank);
    const std::string reduction = record.at("reduction");
    const auto input = tensor_of(own.at("input"));
    if (reduction == "none") {
      EXPECT_THROW(accelerator.reduce(input, reduction), c10::Error);
      ++deviations;
      continue;
    }
    // The scale counts on TPUs only, there and here.
    expect_equal(accelerator.reduce(input, reduction), own.at("output"));
    ++compared;
  }
  if (accel::test::own_golden_files()) {
    EXPECT_EQ(deviations, accel::test::deviation("reduce-none").at("cases"));
    EXPECT_GE(compared, 15);
  }
  EXPECT_GT(compared, 0);
}

TEST(Operations, AsRecorded) {
  for (const auto& name : accel::test::golden_files("operations_", "p.json")) {
    accel::test::run_and_expect_success(
        "follows_recorded_operations", golden(name).at("num_processes"));
  }
}
