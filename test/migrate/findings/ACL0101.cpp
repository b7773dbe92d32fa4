// Instantiations of a template disagree.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

struct Mean {
  torch::Tensor operator()(torch::Tensor a, torch::Tensor b) const {
    return (a - b).pow(2).mean();
  }
};
struct Sum {
  torch::Tensor operator()(torch::Tensor a, torch::Tensor b) const {
    return (a - b).pow(2).sum();
  }
};

template <typename Loader, typename Criterion>
// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0101]
void train(Loader& loader, torch::nn::Linear& net,
           torch::optim::Optimizer& optimizer, Criterion criterion) {
  for (auto& batch : loader) {
    auto loss = criterion(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  train(*loader, net, optimizer, Mean());
  train(*loader, net, optimizer, Sum());
}
