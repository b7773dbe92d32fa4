#pragma once

#include <torch/torch.h>

// A convolution, its normalization, and what skips both.
struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out);
  torch::Tensor forward(torch::Tensor x);

  torch::nn::Conv2d conv{nullptr}, skip{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(Block);

struct BarNetImpl : torch::nn::Module {
  explicit BarNetImpl(int64_t classes);
  torch::Tensor forward(torch::Tensor x);

  Block first{nullptr}, second{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(BarNet);
