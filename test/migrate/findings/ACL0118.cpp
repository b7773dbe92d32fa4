// The training step reads no batch.
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
  for (int i = 0; i < 3; ++i) {
    auto loss = net->weight.pow(2).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
