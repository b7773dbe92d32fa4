// A training loop with nothing in it to share, beside one that is shared.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --check train.cpp > %t/out 2>&1
// RUN: FileCheck %s --input-file %t/out --implicit-check-not=refused:

#include <torch/torch.h>

#include <iostream>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  // Each pass reads all of `data`, one sample after the other.
  auto data = torch::rand({6, 4});
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0175]
  for (int i = 0; i < 6; ++i) {
    optimizer.zero_grad();
    net->forward(data[i]).sum().backward();
    optimizer.step();
  }
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
