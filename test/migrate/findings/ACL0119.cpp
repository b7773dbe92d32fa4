// What the model reads is not a tensor, so that it cannot be split where it is.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <iostream>

struct Pair {
  torch::Tensor left, right;
};

struct Net : torch::nn::Module {
  Net() { fc = register_module("fc", torch::nn::Linear(4, 1)); }
  torch::Tensor forward(const Pair& pair) {
    return fc(pair.left) - fc(pair.right);
  }
  torch::nn::Linear fc{nullptr};
};

int main() {
  Net net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {
    Pair pair{torch::rand({10, 4}), torch::rand({10, 4})};
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0119]
    auto loss = net.forward(pair).pow(2).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
