// Linear regression in one function: a custom data set, a Sequential model,
// Adam with a schedule, evaluation every epoch. For one device.
//
//   ./regression [--epochs N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>

// y = sin(x1) + x2 * x3 with a little noise, from a fixed formula.
struct Waves : torch::data::datasets::Dataset<Waves> {
  explicit Waves(int64_t size) {
    inputs = torch::rand({size, 3}) * 4 - 2;
    targets = torch::sin(inputs.select(1, 0)) + inputs.select(1, 1) * inputs.select(1, 2);
    targets = (targets + 0.05 * torch::randn({size})).unsqueeze(1);
  }

  torch::data::Example<> get(size_t index) override {
    return {inputs[index], targets[index]};
  }

  torch::optional<size_t> size() const override {
    return inputs.size(0);
  }

  torch::Tensor inputs, targets;
};

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  int epochs = 10;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--epochs" && i + 1 < argc) {
      epochs = std::atoi(argv[++i]);
    }
  }
  torch::manual_seed(7);
  const torch::Device device = accelerator.device();

  auto train_set = Waves(607).map(torch::data::transforms::Stack<>());
  auto valid_set = Waves(203).map(torch::data::transforms::Stack<>());
  const double valid_size = *valid_set.size();
  auto train_loader = accel::data::make_data_loader(
      std::move(train_set), torch::data::DataLoaderOptions(50).workers(2));
  auto valid_loader = accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(valid_set), torch::data::DataLoaderOptions(64));

  torch::nn::Sequential net(
      torch::nn::Linear(torch::nn::LinearOptions(3, 32).bias(false)),  // batch norm takes the mean out
      torch::nn::BatchNorm1d(32),
      torch::nn::Tanh(),
      torch::nn::Linear(32, 1));
  net->to(device);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(net->parameters(), torch::optim::AdamOptions(1e-2));
  accelerator.prepare(net, optimizer);
  accel::AcceleratedScheduler<torch::optim::StepLR> scheduler(optimizer, /*step_size=*/4, /*gamma=*/0.5);

  accelerator.cout() << std::setprecision(12);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    net->train();
    double running_loss = 0;
    int batches = 0;
    for (auto& batch : *train_loader) {
      auto step = accelerator.accumulate(net);
      auto prediction = net->forward(batch.data.to(device));
      auto loss = torch::mse_loss(prediction, batch.target.to(device));
      optimizer.zero_grad();
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
      running_loss += loss.item<double>();
      ++batches;
    }
    scheduler.step();

    net->eval();
    torch::NoGradGuard no_grad;
    double squared_error = 0;
    for (auto& batch : *valid_loader) {
      auto prediction = net->forward(batch.data.to(device));
      auto target = batch.target.to(device);
      std::tie(prediction, target) = accelerator.gather_for_metrics(prediction, target);
      squared_error += (prediction - target).pow(2).sum().item<double>();
    }
    accelerator.cout() << "epoch " << epoch << " train " << running_loss / batches << " valid "
              << squared_error / valid_size << std::endl;
  }

  accelerator.save(net, "regression.pt");
}
