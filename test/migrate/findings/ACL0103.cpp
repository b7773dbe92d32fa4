// A template with training code is never instantiated.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

template <typename Loader>
// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0103]
void train(Loader& loader, torch::nn::Linear& net,
           torch::optim::Optimizer& optimizer) {
  for (auto& batch : loader) {
    auto loss = net->forward(batch.data).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
}
