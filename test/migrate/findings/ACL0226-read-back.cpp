// A file may be read before it is written, where the processes cannot wait.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <string>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

static void write(const std::string& path) {
  std::ofstream out(path);
  out << "x";
}
// The text of the path is a macro's, so that the runtime cannot be asked to wait.
#define WORDS "words.txt"
#define OPEN(stream) std::ifstream stream(WORDS)
static std::string read() {
  std::string word;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0226]
  OPEN(in);
  in >> word;
  return word;
}

int main() {
  write("words.txt");
  std::cout << read();
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
