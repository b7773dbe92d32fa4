// The result of an output is used.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fcntl.h>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

#define PUBLISH(from, to) std::rename(from, to)

namespace images {
bool save_image(const std::string& path, int pixels);
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
  bool known = std::ifstream("best.txt").good();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: a macro makes a file, or takes one away, which other processes may read meanwhile, and they cannot wait there [ACL0226]
  PUBLISH("new.txt", "best.txt");
  std::error_code failed;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0226]
  const bool gone = std::filesystem::remove("new.pt", failed);
  if (net->options.bias())
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0226]
    images::save_image("y.png", 2);
  else
    optimizer.zero_grad();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program makes a file that must not be there yet, and every process would do it [ACL0226]
  if (::open("run.lock", O_CREAT | O_EXCL | O_WRONLY, 0644) < 0)
    return 1;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program makes a file that must not be there yet, and every process would do it [ACL0226]
  std::FILE *fresh = std::fopen("fresh.txt", "wx");
  return fresh == nullptr || known;
}
