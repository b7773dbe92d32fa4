// A model or an optimizer that cannot be prepared.
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
  torch::nn::Linear net(4, 1), late(1, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  for (int epoch = 0; epoch < 2; ++epoch) {
    if (epoch == 1) {
      // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0116]
      optimizer.add_param_group(late->parameters());
    }
    for (auto& batch : *loader) {
      auto output = late->forward(net->forward(batch.data));
      auto loss = torch::mse_loss(output, batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  }
}
