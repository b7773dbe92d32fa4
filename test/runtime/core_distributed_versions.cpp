// What autograd counts and copies of distributed tensors is what it counts and
// copies of plain ones: writes are noticed through every view, saved results
// are those of the time, inference mode makes what it makes of plain tensors.
// On a mesh of one process, so that each program can be run on both.

#include "expectations.h"

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

using accel::distributed::DeviceMesh;
using accel::distributed::distribute_tensor;
using accel::distributed::from_local;
using accel::distributed::full_tensor;
using accel::distributed::Partial;
using accel::distributed::Shard;
using torch::Tensor;

namespace {

/// What a program on a tensor has done: numbers, or the beginning of its error.
using Program = std::function<std::vector<double>(const Tensor&)>;

std::string outcome(const Program& program, const Tensor& tensor) {
  std::string text;
  try {
    for (const double value : program(tensor)) {
      text += std::to_string(value) + " ";
    }
  } catch (const std::exception& error) {
    text = "error: " + std::string(error.what()).substr(0, 60);
  }
  return text;
}

Tensor whole() {
  return torch::sin(torch::arange(24, torch::kDouble)).view({4, 6});
}

/// Of the plain tensor and of the distributed one; `fails`: with an error.
void expect_alike(const char* name, bool fails, const Program& program) {
  SCOPED_TRACE(name);
  const accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const DeviceMesh mesh;
  const auto plain = whole().requires_grad_();
  const auto cut =
      distribute_tensor(whole(), mesh, {Shard(0)}).detach().requires_grad_();
  ASSERT_TRUE(accel::distributed::is_distributed(cut));
  const auto expected = outcome(program, plain);
  EXPECT_EQ(expected.rfind("error", 0) == 0, fails) << expected;
  EXPECT_EQ(outcome(program, cut), expected);
}

double sum_of_gradient(const Tensor& w, const Tensor& loss) {
  return torch::autograd::grad({loss}, {w})[0].square().sum().item<double>();
}

double version(const Tensor& tensor) {
  return static_cast<double>(tensor._version());
}

} // namespace

TEST(DistributedVersions, WritesToWhatIsSavedAreErrors) {
  expect_alike("itself", true, [](const Tensor& w) {
    auto y = w.relu();
    const auto z = y * y;
    y.add_(1);
    return std::vector{sum_of_gradient(w, z.sum())};
  });
  expect_alike("through a view", true, [](const Tensor& w) {
    auto y = w.tanh();
    const auto z = y.sum();
    y.view({2, 12}).add_(1);
    return std::vector{sum_of_gradient(w, z)};
  });
  expect_alike("through the transposed one", true, [](const Tensor& w) {
    auto y = w.exp();
    const auto z = (y * 2).sum();
    y.transpose(0, 1).mul_(2);
    return std::vector{sum_of_gradient(w, z)};
  });
  expect_alike("through a slice", true, [](const Tensor& w) {
    auto y = w.sigmoid();
    const auto z = y.sum();
    y.slice(1, 0, 3).select(1, 1).unsqueeze(0).zero_();
    return std::vector{sum_of_gradient(w, z)};
  });
  expect_alike("through detach", true, [](const Tensor& w) {
    auto y = w.exp();
    const auto z = (y * 2).sum();
    y.detach().mul_(2);
    return std::vector{sum_of_gradient(w, z)};
  });
}

TEST(DistributedVersions, DataIsNotCounted) {
  expect_alike("data", false, [](const Tensor& w) {
    auto y = w.exp();
    const auto z = (y * 2).sum();
    y.data().mul_(2);
    return std::vector{version(y), sum_of_gradient(w, z)};
  });
}

TEST(DistributedVersions, ViewsCountTogether) {
  expect_alike("graph", false, [](const Tensor& w) {
    auto y = w * 1;
    auto v = y.slice(1, 0, 3);
    auto u = v.transpose(0, 1);
    u.mul_(2);
    y.add_(1);
    return std::vector{
        version(y), version(v), version(u), sum_of_gradient(w, (y * y).sum()),
        y.detach().sum().item<double>(), u.detach().sum().item<double>()};
  });
  expect_alike("without a graph", false, [](const Tensor& w) {
    const torch::NoGradGuard no_grad;
    auto y = w * 1;
    auto v = y.t();
    auto u = y.view({4, 2, 3});
    v.add_(1);
    u.mul_(3);
    return std::vector{
        version(y), version(v), version(u), v.is_view() ? 1.0 : 0.0,
        y.sum().item<double>(), v.select(0, 2).sum().item<double>()};
  });
}

TEST(DistributedVersions, WholeTensorsAreWrittenAlone) {
  const accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const DeviceMesh mesh;
  const auto cut = distribute_tensor(whole(), mesh, {Shard(0)});
  const torch::NoGradGuard no_grad;
  // Tensors that leave the engine count for themselves again.
  const auto y = cut * 2;
  const auto v = y.t();
  for (const auto& part : {y, v}) {
    auto plain = full_tensor(part);
    const auto before = plain._version();
    plain.mul_(1);
    EXPECT_EQ(plain._version(), before + 1);
    auto local = accel::distributed::to_local(part);
    local.mul_(1);
    EXPECT_EQ(local._version(), 1);
  }
}

TEST(DistributedVersions, ASumThatIsNeededIsAddedUpOnce) {
  const accel::Accelerator accelerator(accel::AcceleratorOptions().cpu(true));
  const DeviceMesh mesh;
  const torch::NoGradGuard no_grad;
  const auto sum = from_local(whole(), mesh, {Partial()});
  const auto view = sum.view({24});
  const auto row = sum.narrow(0, 0, 1);
  const auto placed = [](const Tensor& tensor) { return accel::distributed::placements(tensor)[0]; };
  ASSERT_TRUE(placed(sum).is_sum());
  // A small part of it does not add up all.
  EXPECT_TRUE(torch::equal(full_tensor(row.erfinv()), whole().narrow(0, 0, 1).erfinv()));
  EXPECT_TRUE(placed(sum).is_sum());
  EXPECT_DOUBLE_EQ(torch::dot(view, view).item<double>(), whole().square().sum().item<double>());
  for (const auto& tensor : {sum, view, row}) {
    EXPECT_TRUE(placed(tensor).is_replicate());
  }
  // They are one memory still.
  view.add_(1);
  EXPECT_TRUE(torch::equal(full_tensor(sum), whole() + 1));
  EXPECT_TRUE(torch::equal(full_tensor(row), whole().narrow(0, 0, 1) + 1));
}

TEST(DistributedVersions, InferenceModeMakesWhatItMakesOfPlainTensors) {
  expect_alike("views of a tensor from outside", false, [](const Tensor& w) {
    const auto x = w.detach();
    const c10::InferenceMode inference;
    std::vector<double> seen;
    for (auto v : {x.view({4, 2, 3}), x.t(), x.transpose(0, 1), x.slice(1, 1, 4),
                   x.select(1, 0), x.unsqueeze(1), x.permute({1, 0}),
                   x.detach()}) {
      v.add_(1);
      seen.insert(
          seen.end(),
          {v.is_inference() ? 1.0 : 0.0, v.is_view() ? 1.0 : 0.0, version(x)});
    }
    seen.push_back(x.sum().item<double>());
    return seen;
  });
  expect_alike("results and their views", false, [](const Tensor& w) {
    const c10::InferenceMode inference;
    auto y = w.relu();
    auto v = y.view({2, 12}).t();
    v.mul_(2);
    return std::vector{
        y.is_inference() ? 1.0 : 0.0, v.is_inference() ? 1.0 : 0.0,
        y.sum().item<double>(), w.softmax(1).is_inference() ? 1.0 : 0.0};
  });
  expect_alike("saved outside", true, [](const Tensor& w) {
    Tensor y;
    {
      const c10::InferenceMode inference;
      y = w.relu();
    }
    return std::vector{sum_of_gradient(w, (w * y).sum())};
  });
}

TEST(DistributedVersions, SavedResultsAreThoseOfTheTime) {
  expect_alike("double backward", false, [](const Tensor& w) {
    const auto y = w.tanh();
    const auto first = torch::autograd::grad({(y * y).sum()}, {w}, {}, true, true)[0];
    return std::vector{
        first.sum().item<double>(), sum_of_gradient(w, first.square().sum())};
  });
}
