// Each process makes the whole batch.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --check train.cpp > %t/out 2>&1
// RUN: FileCheck %s --input-file %t/out --implicit-check-not=refused:

#include <torch/torch.h>
#include <iostream>
int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto data = torch::rand({100, 4});
  auto labels = torch::rand({100, 1});
  for (int i = 0; i < 3; ++i) {
    auto x = data.slice(0, i * 10, i * 10 + 10);
    auto y = labels.slice(0, i * 10, i * 10 + 10);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0150]
    auto output = net->forward(x);
    auto loss = torch::mse_loss(output, y);
    std::cout << loss.item<float>() << std::endl;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
