// Handwritten digits: a small convolutional network, trained on one device.
//
// Written the way LibTorch's tutorials are, for one device, and knowing nothing
// of accel. digits.accel.cpp beside it is what accel-migrate makes of it.
//
//   ./digits [--data FILE] [--epochs N] [--double]

#include <torch/torch.h>
#include <accel/accel.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// 1,797 images in all: 1,437 to train on and 360 to test on.
constexpr int64_t kTrainSize = 1437;
constexpr int64_t kTrainBatchSize = 64;
constexpr int64_t kTestBatchSize = 65;
constexpr int64_t kLogInterval = 5;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv1(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
        norm1(16),
        conv2(torch::nn::Conv2dOptions(16, 32, 3).padding(1)),
        norm2(32),
        fc1(32 * 2 * 2, 64),
        fc2(64, 10) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("drop", drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    x = x.view({-1, 32 * 2 * 2});
    x = drop(torch::relu(fc1(x)));
    x = fc2(x);
    return torch::log_softmax(x, /*dim=*/1);
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::Dropout drop{0.3};
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};
TORCH_MODULE(Net);

// The first kTrainSize lines of the file, or the rest of them.
class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  Digits(const std::string& path, bool train) {
    std::ifstream file(path);
    if (!file) {
      std::cerr << "cannot read " << path << std::endl;
      std::exit(1);
    }
    std::vector<float> pixels;
    std::vector<int64_t> labels;
    std::string line;
    for (int64_t row = 0; std::getline(file, line); ++row) {
      if ((row < kTrainSize) != train) {
        continue;
      }
      std::istringstream fields(line);
      std::string field;
      for (int i = 0; i < 64; ++i) {
        std::getline(fields, field, ',');
        pixels.push_back(std::stof(field) / 16);
      }
      std::getline(fields, field, ',');
      labels.push_back(std::stoll(field));
    }
    images_ = torch::tensor(pixels).view({-1, 1, 8, 8}).to(torch::get_default_dtype());
    labels_ = torch::tensor(labels);
  }

  torch::data::Example<> get(size_t index) override {
    return {images_[index], labels_[index]};
  }

  torch::optional<size_t> size() const override {
    return images_.size(0);
  }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

template <typename DataLoader>
void train(
    size_t epoch,
    Net& model,
    torch::Device device,
    DataLoader& data_loader,
    torch::optim::Optimizer& optimizer,
    size_t dataset_size) {
  auto& accelerator = accel::accelerator();
  model->train();
  size_t batch_idx = 0;
  for (auto& batch : data_loader) {
    auto step = accelerator.accumulate(model);
    auto data = batch.data.to(device);
    auto targets = batch.target.to(device);
    optimizer.zero_grad();
    auto output = model->forward(data);
    auto loss = torch::nll_loss(output, targets);
    AT_ASSERT(!std::isnan(loss.template item<double>()));
    accelerator.backward(loss);
    optimizer.step();

    if (batch_idx++ % kLogInterval == 0) {
      accelerator.printf(
          "Train Epoch: %2zu [%5ld/%5ld] Loss: %.12g\n",
          epoch,
          static_cast<long>(batch_idx * batch.data.size(0)),
          static_cast<long>(dataset_size),
          loss.template item<double>());
    }
  }
}

template <typename DataLoader>
void test(
    Net& model,
    torch::Device device,
    DataLoader& data_loader,
    size_t dataset_size) {
  auto& accelerator = accel::accelerator();
  torch::NoGradGuard no_grad;
  model->eval();
  double test_loss = 0;
  int64_t correct = 0;
  for (const auto& batch : data_loader) {
    auto data = batch.data.to(device);
    auto targets = batch.target.to(device);
    auto output = model->forward(data);
    std::tie(output, targets) = accelerator.gather_for_metrics(output, targets);
    test_loss += torch::nll_loss(
                     output,
                     targets,
                     /*weight=*/{},
                     torch::Reduction::Sum)
                     .template item<double>();
    auto pred = output.argmax(1);
    correct += pred.eq(targets).sum().template item<int64_t>();
  }

  test_loss /= dataset_size;
  accelerator.printf(
      "Test set: Average loss: %.12g | Accuracy: %ld/%ld (%.2f%%)\n",
      test_loss,
      static_cast<long>(correct),
      static_cast<long>(dataset_size),
      100. * correct / dataset_size);
}

int main(int argc, char** argv) {
  accel::Accelerator accelerator(accel::AcceleratorOptions().match_single_device(true));
  std::string data_path = "digits.csv";
  size_t epochs = 5;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--double") {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (arg == "--data" && i + 1 < argc) {
      data_path = argv[++i];
    } else if (arg == "--epochs" && i + 1 < argc) {
      epochs = std::stoul(argv[++i]);
    } else {
      std::cerr << "usage: digits [--data FILE] [--epochs N] [--double]" << std::endl;
      return 2;
    }
  }

  torch::manual_seed(1);

  if (!accelerator.device().is_cpu()) {
    accelerator.cout() << "CUDA available! Training on GPU." << std::endl;
  } else {
    accelerator.cout() << "Training on CPU." << std::endl;
  }
  torch::Device device = accelerator.device();

  Net model;
  model->to(device);

  auto train_dataset = Digits(data_path, /*train=*/true).map(torch::data::transforms::Stack<>());
  const size_t train_dataset_size = train_dataset.size().value();
  auto train_loader =
      accel::data::make_data_loader<torch::data::samplers::RandomSampler>(
          std::move(train_dataset), kTrainBatchSize);

  auto test_dataset = Digits(data_path, /*train=*/false).map(torch::data::transforms::Stack<>());
  const size_t test_dataset_size = test_dataset.size().value();
  auto test_loader =
      accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          std::move(test_dataset), kTestBatchSize);

  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  accelerator.prepare(model, optimizer);

  for (size_t epoch = 1; epoch <= epochs; ++epoch) {
    train(epoch, model, device, *train_loader, optimizer, train_dataset_size);
    test(model, device, *test_loader, test_dataset_size);
  }

  accelerator.save(model, "digits.pt");
  return 0;
}
