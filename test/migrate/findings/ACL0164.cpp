// A loader that is made out of sight gives every process all batches whole.
//
// RUN: rm -rf %t && mkdir -p %t/.git && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

using Loader = torch::data::StatelessDataLoader<
    torch::data::datasets::MapDataset<torch::data::datasets::MNIST,
                                      torch::data::transforms::Stack<>>,
    torch::data::samplers::RandomSampler>;
std::unique_ptr<Loader> theLoader();

int main() {
  torch::nn::Linear net(28, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = theLoader();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0164]
  for (auto& batch : *loader) {
    auto loss = net->forward(batch.data).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
