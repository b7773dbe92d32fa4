// An exception in the training is swallowed.
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

struct Trainer {
  torch::nn::Linear& net;
  bool step(torch::Tensor x) {
    try {
      net->forward(x);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0134]
    } catch (const c10::Error&) {
      return false;
    }
    return true;
  }
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  Trainer trainer{net};
  for (int epoch = 0; epoch < 3; ++epoch) {
    try {
      for (auto& batch : *loader) {
        auto output = net->forward(batch.data);
        auto loss = torch::mse_loss(output, batch.target);
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        trainer.step(batch.data);
      }
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0134]
    } catch (const std::exception& e) {
      std::cerr << e.what();
    }
  }
  for (auto& batch : *loader) {
    try {
      net->forward(batch.data);
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0134]
    } catch (const std::exception& e) {
      continue;
    }
  }
  try {
    for (auto& batch : *loader) {
      net->forward(batch.data);
    }
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0134]
  } catch (const std::exception& e) {
    std::cerr << e.what();
  }
  std::cout << net->forward(torch::ones({1, 4}));
}
