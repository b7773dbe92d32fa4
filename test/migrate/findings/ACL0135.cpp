// The program trains in a thread of its own.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

#include <future>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({4}), torch::rand({1})};
  }
  torch::optional<size_t> size() const override { return 100; }
};

// What a thread runs is found through virtual functions, too.
struct Worker {
  virtual ~Worker() = default;
  virtual void work() = 0;
};
struct Named : Worker {
  void work() override { std::cout << "nothing to do\n"; }
};
struct Trainer : Named {
  void work() override { net->forward(torch::rand({3, 4})).sum().backward(); }
  torch::nn::Linear net{4, 1};
};

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
  // One that only prints is no matter.
  std::thread prints([] { std::cout << "done\n"; });
  prints.join();
  std::vector<std::thread> writers;
  writers.emplace_back([] { std::cout << "once more\n"; });
  writers.back().join();
  const std::vector<float> values = [&] {
    auto output = net->forward(torch::rand({3, 4}));
    return std::vector<float>{output.mean().item<float>()};
  }();
  std::thread shows([values] { std::cout << values.front() << "\n"; });
  shows.join();
  // One that is deferred runs where it is waited for.
  auto later = std::async(std::launch::deferred, [&] {
    net->forward(torch::rand({3, 4})).sum().backward();
  });
  later.get();
  // CHECK-NOT: ACL0135
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program trains in a thread of its own{{.*}} [ACL0135]
  std::thread trains([&] { net->forward(torch::rand({3, 4})).sum().backward(); });
  trains.join();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program calls a model in a thread of its own{{.*}} [ACL0135]
  auto held = std::make_unique<std::thread>([&] { net->forward(torch::rand({3, 4})); });
  held->join();
  std::vector<std::thread> workers;
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  workers.emplace_back([&] { net->forward(torch::rand({3, 4})); });
  workers.back().join();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program saves in a thread of its own{{.*}} [ACL0135]
  std::thread saves([&] { torch::save(net, "net.pt"); });
  saves.join();
  std::unique_ptr<Worker> worker = std::make_unique<Trainer>();
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: the program trains in a thread of its own{{.*}} [ACL0135]
  std::thread works([&] { worker->work(); });
  works.join();
}
