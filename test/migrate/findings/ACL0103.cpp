// A template with training code that nothing instantiates stays as it is.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: FileCheck --check-prefix CHANGED --input-file %t/train.cpp %s

#include <torch/torch.h>

template <typename Loader>
// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0103]
void train(Loader& loader, torch::nn::Linear& net,
           torch::optim::Optimizer& optimizer) {
  for (auto& batch : loader) {
    auto loss = net->forward(batch.data).mean();
    optimizer.zero_grad();
    // CHANGED: {{^ +}}loss.backward();
    loss.backward();
    optimizer.step();
  }
}

int main() {
  torch::nn::Linear net(4, 1);
  // CHANGED: accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
  torch::optim::SGD optimizer(net->parameters(), 0.1);
}
