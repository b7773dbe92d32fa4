// The closure of an optimizer is not to be seen, or its loss is no mean.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

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
  std::function<torch::Tensor()> closure;
  for (auto& batch : *loader) {
    closure = [&] {
      return torch::mse_loss(net->forward(batch.data), batch.target);
    };
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0115]
    optimizer.step(closure);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0115]
    optimizer.step([&] {
      return torch::mse_loss(net->forward(batch.data), batch.target,
                             torch::Reduction::Sum);
    });
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    loss.backward();
  }
}
