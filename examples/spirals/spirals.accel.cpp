// Three spirals, generated, no data loader: batches are slices of a shuffled
// tensor. For one device.
//
//   ./spirals [--epochs N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

constexpr int64_t kPerClass = 133;
constexpr int64_t kClasses = 3;
constexpr int64_t kBatchSize = 28;

struct Classifier : torch::nn::Module {
  Classifier() {
    hidden1 = register_module("hidden1", torch::nn::Linear(2, 48));
    hidden2 = register_module("hidden2", torch::nn::Linear(48, 48));
    output = register_module("output", torch::nn::Linear(48, kClasses));
  }

  torch::Tensor forward(const torch::Tensor& points) {
    auto x = torch::tanh(hidden1->forward(points));
    x = torch::dropout(x, /*p=*/0.1, is_training());
    x = torch::tanh(hidden2->forward(x));
    return output->forward(x);
  }

  torch::nn::Linear hidden1{nullptr}, hidden2{nullptr}, output{nullptr};
};

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int epochs = 30;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--epochs" && i + 1 < argc) {
      epochs = std::atoi(argv[++i]);
    }
  }
  torch::manual_seed(3);

  torch::Device device = accelerator.device();

  const int64_t count = kPerClass * kClasses;
  auto radius = torch::linspace(0.1, 1, kPerClass).repeat({kClasses});
  auto arm = torch::arange(kClasses).repeat_interleave(kPerClass);
  auto angle = radius * 5 + arm * (2 * M_PI / kClasses) + 0.1 * torch::randn({count});
  auto points = torch::stack({radius * torch::cos(angle), radius * torch::sin(angle)}, 1).to(device);
  auto labels = arm.to(torch::kLong).to(device);

  auto model = std::make_shared<Classifier>();
  model->to(device);
  accel::AcceleratedOptimizer<torch::optim::AdamW> optimizer(model->parameters(), torch::optim::AdamWOptions(5e-3));
  accelerator.prepare(model, optimizer);

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    auto order = torch::randperm(count).to(device);
    double epoch_loss = 0;
    for (int64_t start = 0; start < count; start += kBatchSize) {
      auto step = accelerator.accumulate(model);
      auto rows = order.slice(0, start, std::min(start + kBatchSize, count));
      auto x = points.index_select(0, rows);
      auto y = labels.index_select(0, rows);
      std::tie(x, y) = accelerator.distribute(x, y);
      x = x + 0.01 * torch::randn_like(x);
      auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
      optimizer.zero_grad();
      accelerator.backward(loss);
      optimizer.step();
      epoch_loss += loss.item<double>() * x.size(0);
    }
    if (epoch % 5 == 0) {
      model->eval();
      torch::NoGradGuard no_grad;
      auto guess = model->forward(accelerator.distribute(points)).argmax(1);
      auto accuracy = guess.eq(labels).to(torch::kDouble).mean().item<double>();
      accelerator.printf("epoch %3d loss %.12g accuracy %.6f\n", epoch, epoch_loss / count, accuracy);
    }
  }

  accelerator.save(model, "spirals.pt");
  return 0;
}
