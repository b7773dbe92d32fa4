// The training is set up before main begins.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <memory>

torch::nn::Linear net(4, 1);

// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0184]
std::unique_ptr<torch::optim::SGD> make_optimizer() {
  auto made = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
  return made;
}
std::unique_ptr<torch::optim::SGD> optimizer = make_optimizer();

int main() {
  for (int i = 0; i < 3; ++i) {
    auto loss = net->forward(torch::rand({8, 4})).mean();
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
  }
}
