// Two moons, told apart by a network of raw tensors: no module and no optimizer,
// parameters with requires_grad and momentum by hand. For one device.
//
//   ./raw_sgd [--epochs N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

using torch::indexing::Slice;

constexpr int64_t kSamples = 1000;
constexpr int64_t kTrainSize = 800;
constexpr int64_t kBatchSize = 48;
constexpr int64_t kHidden = 32;
constexpr double kRate = 0.1;
constexpr double kMomentum = 0.9;
constexpr double kDecay = 1e-4;

struct Moons {
  torch::Tensor points, labels;
};

Moons make_moons() {
  const int64_t half = kSamples / 2;
  auto angle = torch::rand({half}) * M_PI;
  auto upper = torch::stack({torch::cos(angle), torch::sin(angle)}, 1);
  angle = torch::rand({half}) * M_PI;
  auto lower = torch::stack({1 - torch::cos(angle), 0.5 - torch::sin(angle)}, 1);
  auto points = torch::cat({upper, lower}) + 0.15 * torch::randn({kSamples, 2});
  auto labels = torch::cat({torch::zeros({half}), torch::ones({half})});
  auto order = torch::randperm(kSamples);
  return {points.index({order}), labels.index({order})};
}

// Weights of a layer, by He's rule.
torch::Tensor weight(int64_t in, int64_t out) {
  return (torch::randn({in, out}) * std::sqrt(2.0 / in)).requires_grad_();
}

torch::Tensor bias(int64_t out) {
  return torch::zeros({out}, torch::requires_grad());
}

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int epochs = 60;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--epochs" && i + 1 < argc) {
      epochs = std::stoi(argv[++i]);
    } else {
      std::cerr << "usage: raw_sgd [--epochs N] [--double]" << std::endl;
      return 2;
    }
  }
  torch::manual_seed(5);

  auto data = make_moons();
  auto x_train = data.points.index({Slice(0, kTrainSize)});
  auto y_train = data.labels.index({Slice(0, kTrainSize)});
  auto x_test = data.points.index({Slice(kTrainSize)});
  auto y_test = data.labels.index({Slice(kTrainSize)});
  std::tie(x_test, y_test) = accelerator.distribute(x_test, y_test);

  auto w1 = weight(2, kHidden), b1 = bias(kHidden);
  auto w2 = weight(kHidden, kHidden), b2 = bias(kHidden);
  auto w3 = weight(kHidden, 1), b3 = bias(1);
  std::vector<torch::Tensor> parameters = {w1, b1, w2, b2, w3, b3};
  std::vector<torch::Tensor> velocities;
  for (const auto& p : parameters) {
    velocities.push_back(torch::zeros_like(p));
  }

  auto forward = [&](const torch::Tensor& x) {
    auto h = torch::relu(x.mm(w1) + b1);
    h = torch::relu(h.mm(w2) + b2);
    return (h.mm(w3) + b3).squeeze(1);
  };

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    auto order = torch::randperm(kTrainSize);
    double total = 0;
    for (int64_t begin = 0; begin < kTrainSize; begin += kBatchSize) {
      auto step = accelerator.accumulate();
      auto rows = order.index({Slice(begin, begin + kBatchSize)});
      auto x = x_train.index({rows});
      auto y = y_train.index({rows});
      std::tie(x, y) = accelerator.distribute(x, y);

      auto loss = torch::binary_cross_entropy_with_logits(forward(x), y);
      for (const auto& p : parameters) {
        loss = loss + kDecay * p.pow(2).sum();
      }
      accelerator.backward(loss);

      torch::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        auto& p = parameters[i];
        velocities[i] = kMomentum * velocities[i] + p.grad();
        p -= kRate * velocities[i];
        p.grad().zero_();
      }
      total += loss.item<double>() * rows.size(0);
    }
    if (epoch % 10 == 0 || epoch == epochs) {
      torch::NoGradGuard no_grad;
      auto logits = forward(x_test);
      auto correct = logits.gt(0).eq(y_test.gt(0.5)).sum().item<int64_t>();
      accelerator.cout() << "epoch " << epoch << ": loss " << total / kTrainSize << ", test "
                << torch::binary_cross_entropy_with_logits(logits, y_test).item<double>() << ", "
                << correct << " of " << y_test.size(0) << " right" << std::endl;
    }
  }

  accelerator.save(parameters, "raw_sgd.pt");
  return 0;
}
