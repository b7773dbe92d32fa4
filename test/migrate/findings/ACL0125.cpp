// The reduction of the loss is not clear.
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

// The loop itself calls no model that could be shared out (data-parallel).
static torch::Tensor predict(torch::nn::Linear& net, const torch::Tensor& x) {
  return net->forward(x);
}

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  for (auto& batch : *loader) {
    auto output = predict(net, batch.data);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0125]
    auto loss = torch::mse_loss(output, batch.target, torch::Reduction::Sum) + 0.1 * net->weight.pow(2).sum();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
