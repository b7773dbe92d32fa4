// backward() for a graph is right as it stands.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: FileCheck --check-prefix CHANGED --input-file %t/train.cpp %s
// RUN: %clangxx %t/train.cpp

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
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    // CHANGED: {{^ +}}accelerator.backward(loss, accel::BackwardOptions().gradient(torch::ones_like(loss) * 2).retain_graph(true));
    loss.backward(torch::ones_like(loss) * 2, /*retain_graph=*/true);
    // CHANGED: {{^ +}}accelerator.backward(loss * 2, accel::BackwardOptions().gradient(torch::tensor(-1.0f)));
    (loss * 2).backward(torch::tensor(-1.0f));
    // CHECK: train.cpp:[[#@LINE+2]]:{{[0-9]+}}: note: {{.*}} [ACL0109]
    // CHANGED: {{^ +}}loss.backward({}, true
    loss.backward({}, true, /*create_graph=*/true);
    optimizer.step();
  }
  auto rows = torch::rand({20, 4});
  // A step, too: its rows are shared out.
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: the processes share out this training loop{{.*}} [ACL0174]
  for (int i = 0; i < 20; i += 10) {
    // CHANGED: net->forward(accelerator.distribute(rows.narrow(0, i, 10)))
    auto output = net->forward(rows.narrow(0, i, 10));
    // The losses of a list have the gradient of their sum.
    // CHANGED: {{^ +}}accelerator.backward(output.sum() + output.pow(2).mean(), accel::BackwardOptions().retain_graph(true));
    torch::autograd::backward({output.sum(), output.pow(2).mean()}, {}, true);
    // CHANGED: {{^ +}}accelerator.backward(output.sum());
    torch::autograd::backward({output.sum()}, {}, std::nullopt, false);
    // CHECK: train.cpp:[[#@LINE+2]]:{{[0-9]+}}: note: backward() is called with the argument 'grad_tensors' {{.*}} [ACL0109]
    // CHANGED: {{^ +}}torch::autograd::backward({net->forward(
    torch::autograd::backward({net->forward(rows)}, {torch::ones({20, 1})});
    std::vector<torch::Tensor> losses = {net->forward(rows).sum()};
    // CHECK: train.cpp:[[#@LINE+2]]:{{[0-9]+}}: note: torch::autograd::backward is called {{.*}} [ACL0109]
    // CHANGED: {{^ +}}torch::autograd::backward(losses);
    torch::autograd::backward(losses);
    optimizer.step();
  }
}
