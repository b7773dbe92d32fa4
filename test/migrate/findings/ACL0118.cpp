// The batch is made outside of the loop.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>
#include <iostream>
int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0118]
  auto data = torch::rand({100, 4});
  auto labels = torch::rand({100, 1});
  for (int i = 0; i < 3; ++i) {
    auto loss = torch::mse_loss(net->forward(data), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
