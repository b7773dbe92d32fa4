// A part of the training is not in this file.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

torch::optim::Optimizer& theOptimizer();

int main() {
  torch::nn::Linear net(4, 1);
  auto& optimizer = theOptimizer();
  for (int i = 0; i < 3; ++i) {
    auto x = torch::rand({8, 4});
    auto loss = net->forward(x).mean();
    optimizer.zero_grad();
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0117]
    loss.backward();
    optimizer.step();
  }
}
