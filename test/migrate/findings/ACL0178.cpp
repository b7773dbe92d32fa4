// A scheduler of the program's own.
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

struct Halving : torch::optim::LRScheduler {
  using LRScheduler::LRScheduler;
  std::vector<double> get_lrs() override {
    auto rates = get_current_lrs();
    for (double& rate : rates)
      rate /= 2;
    return rates;
  }
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0178]
  Halving scheduler(optimizer);
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    scheduler.step();
  }
}
