// A stateful data set.
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

struct Stream : torch::data::datasets::StatefulDataset<Stream, torch::data::Example<>> {
  torch::optional<torch::data::Example<>> get_batch(size_t n) override {
    return torch::data::Example<>{torch::rand({(long)n, 4}), torch::rand({(long)n, 1})};
  }
  torch::optional<size_t> size() const override { return 100; }
  void reset() override {}
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
};

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0141]
  auto loader = torch::data::make_data_loader(Stream(), 10);
  for (auto& batch : *loader) {
    auto output = net->forward(batch.data);
    auto loss = torch::mse_loss(output, batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
