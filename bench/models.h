#pragma once

#include <torch/torch.h>

// The networks that are measured.
namespace bench {

// 200 small layers: what a step costs besides arithmetic.
inline torch::nn::Sequential small_layers() {
  torch::nn::Sequential net;
  for (int i = 0; i < 200; ++i) {
    net->push_back(torch::nn::Linear(16, 16));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

// 10 million parameters in four layers: what it costs to move gradients.
inline torch::nn::Sequential mlp() {
  return torch::nn::Sequential(
      torch::nn::Linear(1024, 2048),
      torch::nn::ReLU(),
      torch::nn::Linear(2048, 2048),
      torch::nn::ReLU(),
      torch::nn::Linear(2048, 1770),
      torch::nn::ReLU(),
      torch::nn::Linear(1770, 64));
}

} // namespace bench
