// TorchScript models on rows of a batch.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

using accel::Accelerator;
using accel::RowWiseModel;
using accel::test::contains;

namespace {

/// As what Python scripts: it knows whether it is in training.
torch::jit::Module empty_model() {
  torch::jit::Module model("model");
  model.register_attribute("training", c10::BoolType::get(), true);
  return model;
}

torch::jit::Module scripted(const std::string& body) {
  auto model = empty_model();
  torch::manual_seed(3);
  model.register_parameter("w", torch::randn({4, 4}), /*is_buffer=*/false);
  model.define("def forward(self, x):\n" + body);
  return model;
}

/// What `forward` throws for six rows; empty where it throws nothing.
std::string refusal(const torch::jit::Module& model) {
  try {
    RowWiseModel(model, /*look=*/true).forward({torch::randn({6, 4})});
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

} // namespace

TEST(RowWise, ModelsThatKeepRowsApartAreCalled) {
  const auto model = scripted(
      "    y = torch.relu(torch.matmul(x, self.w))\n"
      "    return torch.softmax(y.view(x.size(0), -1), 1)\n");
  const auto x = torch::randn({6, 4});
  RowWiseModel row_wise(model, /*look=*/true);
  EXPECT_TRUE(torch::equal(
      row_wise.forward({x}).toTensor(),
      torch::softmax(torch::relu(x.matmul(model.attr("w").toTensor())), 1)));
}

TEST(RowWise, BatchNormAndDropoutAreTheRuntimes) {
  for (const bool scripted_in_training : {true, false}) {
    auto model = empty_model();
    model.register_buffer("mean", torch::zeros({4}));
    model.register_buffer("var", torch::ones({4}));
    model.define(
        "def forward(self, x):\n"
        "    y = torch.batch_norm(x, None, None, self.mean, self.var, " +
        std::string(scripted_in_training ? "True" : "self.training") +
        ", 0.1, 1e-5, False)\n"
        "    return torch.dropout(y, 0.5, self.training)\n");
    EXPECT_EQ(refusal(model), "");
    EXPECT_NE(model.attr("mean").toTensor().abs().sum().item<double>(), 0);
  }
}

TEST(RowWise, EveryModeIsLookedAt) {
  torch::jit::Module model = scripted(
      "    if not self.training:\n        x = x - x.mean(0)\n    return x\n");
  EXPECT_EQ(refusal(model), "");
  model.eval();
  EXPECT_NE(refusal(model), "");
}

TEST(RowWise, ModelsThatMixRowsAreRefused) {
  const char* apart = "does not keep the samples of a batch apart";
  for (const char* body :
       {"    return x - x.mean(0)\n",
        "    return torch.softmax(x, 0)\n",
        "    return x.flip(0)\n",
        "    return x.cumsum(0)\n",
        "    return torch.matmul(x, self.w) / x.std()\n",
        "    if self.training:\n        x = x - x.mean(0)\n    return x\n"}) {
    EXPECT_TRUE(contains(refusal(scripted(body)), apart)) << body;
  }
  for (const char* body :
       {"    return x.mean()\n",
        "    return x.t()\n",
        "    return torch.cat([x, x], 0)\n",
        "    return x[0:3]\n"}) {
    EXPECT_TRUE(contains(
        refusal(scripted(body)), "does not return one row for each sample"))
        << body;
  }
  EXPECT_TRUE(contains(
      refusal(scripted("    return x.view(6, 2, 2)\n")),
      "takes 6 rows but not 3"));
}

TEST(RowWise, ModelsThatReadNumbersAreRefused) {
  for (const char* body :
       {"    if bool(x.sum() > 100.0):\n        x = x - x.mean(0)\n    return x\n",
        "    return x * float(x.max())\n",
        "    return x * x.max().item()\n"}) {
    EXPECT_TRUE(contains(
        refusal(scripted(body)), "depends on the numbers in its tensors"))
        << body << refusal(scripted(body));
  }
}

TEST(RowWise, TheLookChangesNothing) {
  auto counting = empty_model();
  counting.register_parameter("w", torch::eye(4), false);
  counting.register_buffer("calls", torch::zeros({1}));
  counting.define(
      "def forward(self, x):\n"
      "    self.calls.add_(1)\n"
      "    return torch.dropout(torch.matmul(x, self.w), 0.5, self.training)\n");
  const auto x = torch::randn({6, 4});
  torch::manual_seed(5);
  const auto expected = counting.forward({x}).toTensor();
  counting.attr("calls").toTensor().zero_();
  torch::manual_seed(5);
  RowWiseModel row_wise(counting, /*look=*/true);
  EXPECT_TRUE(torch::equal(row_wise.forward({x}).toTensor(), expected));
  EXPECT_TRUE(counting.is_training());
  EXPECT_EQ(counting.attr("calls").toTensor().item<double>(), 1);
}

TEST(RowWise, OneRowIsLookedAtLater) {
  const auto model = scripted("    return x - x.mean(0)\n");
  RowWiseModel row_wise(model, /*look=*/true);
  EXPECT_NO_THROW(row_wise.forward({torch::randn({1, 4})}));
  EXPECT_THROW(row_wise.forward({torch::randn({2, 4})}), c10::Error);
  EXPECT_THROW(row_wise.forward({torch::randn({3, 4})}), c10::Error);
}

ACCEL_RANK_FUNCTION(looks_only_with_others) {
  Accelerator accelerator;
  const auto model = scripted("    return x - x.mean(0)\n");
  auto row_wise = accelerator.row_wise(model);
  if (accelerator.num_processes() == 1) {
    EXPECT_NO_THROW(row_wise.forward({torch::randn({6, 4})}));
  } else {
    EXPECT_THROW(row_wise.forward({torch::randn({6, 4})}), c10::Error);
  }
}

TEST(RowWise, OneProcessMayMixRows) {
  for (const int processes : {1, 2}) {
    accel::test::run_and_expect_success("looks_only_with_others", processes);
  }
}
