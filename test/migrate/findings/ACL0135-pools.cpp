// Training in threads that a pool, a library or OpenMP starts.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s --implicit-check-not=ACL0135
// RUN: cmp %s %t/train.cpp

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <queue>
#include <thread>
#include <vector>

class Pool {
public:
  template <class F, class... Args> void enqueue(F&& f, Args&&... args) {
    tasks.emplace([=]() mutable { f(args...); });
  }
  void post(std::function<void()> task) { tasks.push(std::move(task)); }

private:
  std::vector<std::thread> workers;
  std::queue<std::function<void()>> tasks;
};

// Priorities and tasks in a class of their own, and threads in an array.
struct Task {
  int priority;
  std::packaged_task<void()> run;
};
struct Queue {
  std::vector<Task> tasks;
};
class Workers : Queue {
public:
  void add(std::packaged_task<void()> task) { tasks.push_back({0, std::move(task)}); }

private:
  std::unique_ptr<std::thread[]> threads;
};

// No pool: what it is given is called, and its thread prints.
class Progress {
public:
  template <class F> void around(F&& f) { f(); }

private:
  std::thread prints;
};

// Has a pool, and calls itself what it is given; hands on what it is given.
class Trainer {
public:
  void on_epoch(std::function<void(int)> f) { log = std::move(f); }
  void run() {
    log(1);
    pool->post([] { std::cout << "saved\n"; });
  }

private:
  std::unique_ptr<Pool> pool = std::make_unique<Pool>();
  std::function<void(int)> log;
};
class Later {
public:
  void run(std::function<void(int)> f) {
    // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
    pool.post([f] { f(1); });
  }

private:
  Pool pool;
};

void step(torch::nn::Linear net) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  optimizer.zero_grad();
  net->forward(torch::rand({16, 4})).pow(2).mean().backward();
  optimizer.step();
}

int main() {
  torch::nn::Linear net(4, 1);
  std::vector<torch::nn::Linear> nets(4, net);
  Pool pool;
  pool.enqueue([] { std::cout << "done\n"; });
  pool.post([] { std::cout << "once more\n"; });
  Trainer trainer;
  trainer.on_epoch([&](int) { step(net); });
  trainer.run();
  Later later;
  later.run([&](int) { step(net); });
  Progress progress;
  progress.around([&] { step(net); });
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  pool.enqueue([&] { step(net); });
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  pool.enqueue(step, net);
  auto held = [&] { step(net); };
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  pool.post(held);
  Workers workers;
  std::packaged_task<void()> task([&] { step(net); });
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  workers.add(std::move(task));
  at::parallel_for(0, 4, 1, [](int64_t, int64_t) { std::cout << "part\n"; });
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin)
      step(nets[begin]);
  });
#pragma omp parallel for
  for (int i = 0; i < 4; ++i)
    std::cout << "part\n";
#pragma omp simd
  for (auto& each : nets)
    step(each);
#  pragma omp parallel for schedule(static)
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  for (int i = 0; i < 4; ++i)
    step(nets[i]);
#pragma omp parallel
  // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0135]
  {
    step(nets[0]);
  }
}
