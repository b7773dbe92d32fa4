// The device is chosen before main: where it can be, it is chosen again there.
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

// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}} [ACL0139]
const torch::Device fixed = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
torch::Device device = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;

// CHECK: train.cpp:[[#@LINE+4]]:{{[0-9]+}}: note: 'choose' chooses a device, {{.*}} [ACL0139]
// CHANGED: {{^}}torch::Device choose() {
// CHANGED-NEXT: if (torch::cuda::is_available())
// CHANGED-NEXT: return torch::Device("cuda:0");
torch::Device choose() {
  if (torch::cuda::is_available())
    return torch::Device("cuda:0");
  return torch::kCPU;
}
// CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: note: {{.*}}'chosen'{{.*}} [ACL0139]
const torch::Device chosen = choose();

// CHANGED: accel::Accelerator accelerator(
// CHANGED-NEXT: device = accelerator.device();
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
}
