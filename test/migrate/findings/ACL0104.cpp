// Training code without main.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>
#include <iostream>
void fit() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto data = torch::rand({100, 4});
  auto labels = torch::rand({100, 1});
  for (int i = 0; i < 3; ++i) {
    auto x = data.slice(0, i * 10, i * 10 + 10);
    auto y = labels.slice(0, i * 10, i * 10 + 10);
    auto output = net->forward(x);
    auto loss = torch::mse_loss(output, y);
    std::cout << loss.item<float>() << std::endl;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
// CHECK: refused: {{.*}} [ACL0104]
