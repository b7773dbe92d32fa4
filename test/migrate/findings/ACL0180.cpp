// The processes share out the calls of models only: in the loss all samples meet.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: grep -q 'accelerator.data_parallel(net, batch.data)' %t/train.cpp
// RUN: %accel_migrate --check %t/train.cpp
// RUN: %clangxx %t/train.cpp

#include <torch/torch.h>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

int main() {
  torch::nn::Linear net(4, 3);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0180]
  for (auto& batch : *loader) {
    auto z = net->forward(batch.data);
    auto loss = -torch::log_softmax(torch::mm(z, z.t()), 1).diag().mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
