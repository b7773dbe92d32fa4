// The migrated text has a collective call that only some processes make: the
// waiting behind the saving would stand in a handler.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp
//
// CHECK: train.cpp: refused: the migrated text would leave processes apart (ACL0210): {{.*}} in 'accelerator.wait_for_everyone();' [ACL0016]

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
  try {
    for (auto& batch : *loader) {
      auto output = net->forward(batch.data);
      auto loss = torch::mse_loss(output, batch.target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  } catch (const std::exception&) {
    torch::save(net, "net.pt");
    throw;
  }
  torch::load(net, "net.pt");
}
