// Training code without main: migrated, with a note that says what is missing.
//
// RUN: rm -rf %t && mkdir -p %t/.git && cp %s %t/train.cpp
// RUN: cd %t && %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: FileCheck --check-prefix CHANGED --input-file %t/train.cpp %s
// RUN: %clangxx %t/train.cpp

#include <torch/torch.h>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

void fit() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader(
      Points().map(torch::data::transforms::Stack<>()), 10);
  for (auto& batch : *loader) {
    auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}
// CHECK: note: no main() is seen{{.*}} [ACL0162]
// CHECK-NEXT: Where a main creates one, that is used.
// CHANGED: void fit() {
// CHANGED-NEXT: auto& accelerator = accel::accelerator(accel::AcceleratorOptions().match_single_device(true));
// CHANGED-NOT: {{^ +}}accel::Accelerator accelerator
