// Of each training loop is said what is shared out in it: a loader's batches,
// batches made by hand, data read whole.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --check train.cpp > %t/out 2>&1
// RUN: FileCheck %s --input-file %t/out --implicit-check-not=ACL0175

#include <torch/torch.h>

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
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} by the rows of '*loader' [ACL0174]
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  auto data = torch::rand({60, 4});
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} by the rows of 'data.slice(0, 10 * i, 10 * i + 10)', 'torch::randn({8, 4})' [ACL0174]
  for (int i = 0; i < 6; ++i) {
    auto x = data.slice(0, 10 * i, 10 * i + 10);
    optimizer.zero_grad();
    (net->forward(x).sum() + net->forward(torch::randn({8, 4})).sum()).backward();
    optimizer.step();
  }
  // What a lambda reads is shared out in the loops that call it, through another one,
  // too.
  const auto loss_of = [&](const torch::Tensor& y) {
    return torch::mse_loss(net->forward(torch::rand({24, 4})), y);
  };
  const auto closure = [&] {
    optimizer.zero_grad();
    auto loss = loss_of(torch::rand({24, 1}));
    loss.backward();
    return loss;
  };
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} by the rows of {{.*}}'torch::rand({24, 4})'{{.*}} [ACL0174]
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    auto loss = loss_of(torch::rand({24, 1}));
    loss.backward();
    optimizer.step();
  }
  for (int i = 0; i < 3; ++i) optimizer.step(closure);
}
