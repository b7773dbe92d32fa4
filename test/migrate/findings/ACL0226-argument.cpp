// An argument of an output does more than to be read, in a call that cannot be
// given values.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <string>
#include <vector>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

namespace images {
bool save_images(const std::string& path, std::vector<torch::Tensor> images);
}

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  for (auto& batch : *loader) {
    auto output = net->forward(batch.data);
    auto loss = torch::mse_loss(output, batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0226]
  images::save_images("x.png", {torch::randn({4, 4})});
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0226]
  images::save_images("x.png", {net->forward(torch::ones({4, 4}))});
  auto picture = torch::ones({4, 4});
  images::save_images("x.png", {picture});
}
