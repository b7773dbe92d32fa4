#include "model.h"

BlockImpl::BlockImpl(int64_t in, int64_t out) {
  conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
  skip = register_module("skip", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1)));
  norm = register_module("norm", torch::nn::BatchNorm2d(out));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  return torch::relu(norm(conv(x)) + skip(x));
}

BarNetImpl::BarNetImpl(int64_t classes) {
  first = register_module("first", Block(1, 12));
  second = register_module("second", Block(12, 24));
  dropout = register_module("dropout", torch::nn::Dropout(0.2));
  output = register_module("output", torch::nn::Linear(24, classes));
}

torch::Tensor BarNetImpl::forward(torch::Tensor x) {
  x = torch::max_pool2d(first(x), 2);
  x = second(x).mean({2, 3});
  return output(dropout(x));
}
