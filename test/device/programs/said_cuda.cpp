// A training that says in many ways that it is for CUDA: constants, texts, options,
// calls, questions, pinned memory, waiting. The tests run it migrated on simulated
// devices, and on the CPU with "cpu" in place of what it says.

#include <torch/torch.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t index) override {
    const auto x = torch::arange(4, torch::kDouble).add(static_cast<double>(index)).sin();
    return {x, x.pow(2).sum().unsqueeze(0)};
  }
  torch::optional<size_t> size() const override { return 22; }
};

torch::Device everywhere = torch::kCUDA;

struct NetImpl : torch::nn::Module {
  NetImpl() : first(register_module("first", torch::nn::Linear(4, 8))), last(register_module("last", torch::nn::Linear(8, 1))) {
    scale = register_buffer("scale", torch::full({1}, 0.5, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto h = torch::tanh(first(x));
    if (x.is_cuda()) {
      h = h.contiguous();
    }
    // Made where the device is.
    h = h + torch::zeros({8}, torch::TensorOptions(torch::kDouble).device(torch::kCUDA));
    h = h + torch::zeros({8}, torch::device(torch::kCUDA).dtype(torch::kDouble));
    h = h + torch::zeros({8}, torch::kDouble).to("cuda");
    return last(h) * scale;
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Net);

int main() {
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  torch::manual_seed(1);
  torch::Device device("cuda:0");
  torch::DeviceType kind = torch::kCPU;
  kind = torch::kCUDA;
  Net net;
  net->to(torch::kDouble);
  net->to(torch::kCUDA);
  auto target_scale = torch::ones({1}, torch::kDouble).cuda();
  auto offset = torch::zeros({1}, torch::kDouble).to(everywhere);
  auto again = torch::zeros({1}, torch::TensorOptions(torch::kDouble).device(kind));
  auto third = torch::zeros({1}, torch::TensorOptions(torch::kDouble).device(torch::Device(torch::kCUDA, 0)));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Points().map(torch::data::transforms::Stack<>()), 8);
  std::cout << std::setprecision(12);
  for (int epoch = 0; epoch < 2; ++epoch) {
    double sum = 0;
    for (auto& batch : *loader) {
      auto data = batch.data.pin_memory().to(device, /*non_blocking=*/true);
      auto target = batch.target.to(torch::kCUDA, torch::kDouble) * target_scale + offset + again + third;
      auto output = net->forward(data);
      auto loss = torch::mse_loss(output, target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    torch::cuda::synchronize();
    if (device.is_cuda()) {
      torch::cuda::synchronize();
    }
    std::cout << "epoch " << epoch << " loss " << sum << std::endl;
  }
}
