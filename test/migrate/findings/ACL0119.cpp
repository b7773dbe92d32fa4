// The batch is not in variables that can be split.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>
#include <iostream>
int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto data = torch::rand({100, 4});
  auto labels = torch::rand({100, 1});
  for (int i = 0; i < 3; ++i) {
    auto x = data.slice(0, i * 10, i * 10 + 10);
    auto output = net->forward(x);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0119]
    auto y = labels.slice(0, i * 10, i * 10 + 10);
    auto loss = torch::mse_loss(output, y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
