// Output that every process writes.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && %accel_migrate --write train.cpp 2>&1 | FileCheck %s

#include <torch/torch.h>

#include <unistd.h>

#include <cstdio>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

namespace spdlog {
template <typename... T> void info(const char*, T&&...) {}
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
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: warning: {{.*}} [ACL0154]
    spdlog::info("loss {}", loss.item<double>());
  }
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: warning: 'printf' is given to something {{.*}} [ACL0154]
  int (*print)(const char*, ...) = std::printf;
  print("done\n");
  // CHECK-NOT: ACL0154
  std::printf("done\n");
  if (write(2, "done\n", 5) != 5) return 1;
  if (write(STDOUT_FILENO, "done\n", 5) != 5) return 1;
  // CHECK: train.cpp:[[#@LINE+2]]:{{[0-9]+}}: warning: 'write' prints on every process [ACL0154]
  constexpr int screen = 1;
  if (write(screen, "done\n", 5) != 5) return 1;
}
