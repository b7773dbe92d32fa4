// A trainer whose members say that they are for CUDA, and whose model is of half
// precision. One step, in which all numbers are short enough to be exact in it,
// however the rows are shared out.
#include <torch/torch.h>

#include <iostream>
#include <memory>

namespace {

struct Trainer {
  explicit Trainer(torch::Device where) : device(where) {
    net->to(torch::kCUDA, torch::kHalf);
    {
      torch::NoGradGuard no_grad;
      net->weight.fill_(0.5);
    }
    weight = torch::ones({1}, torch::TensorOptions(torch::kCUDA)).to(torch::kHalf);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.0625);
  }

  void train(int64_t step) {
    const auto rows = torch::arange(8).add(step).remainder(3).sub(1);
    auto x = torch::stack({rows, rows.mul(2), rows.add(1), torch::ones_like(rows)}, 1).to(torch::kHalf);
    auto y = x.sum(1, /*keepdim=*/true);
    x = x.to(device);
    y = y.to(other) * weight;
    auto output = net->forward(x);
    auto loss = (output - y).pow(2).mean();
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
    torch::cuda::synchronize();
    std::cout << "step " << step << " loss " << loss.item<double>() << " gradient "
              << net->weight.grad().abs().sum().item<double>() << " weight "
              << net->weight.abs().sum().item<double>() << std::endl;
  }

  torch::Device device;
  torch::Device other = torch::kCUDA;
  torch::nn::Linear net{torch::nn::LinearOptions(4, 1).bias(false)};
  torch::Tensor weight;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

} // namespace

int main() {
  Trainer trainer(torch::kCUDA);
  trainer.train(0);
}
