// The training step stands in a method of a class.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp

#include <torch/torch.h>

struct Trainer {
  void fit() {
    for (int i = 0; i < 3; ++i) {
      auto x = torch::rand({8, 4});
      auto loss = net->forward(x).mean();
      optimizer.zero_grad();
      // CHECK: train.cpp:[[#@LINE+1]]:{{[0-9]+}}: refused: {{.*}} [ACL0107]
      loss.backward();
      optimizer.step();
    }
  }
  torch::nn::Linear net{4, 1};
  torch::optim::SGD optimizer{net->parameters(), 0.1};
};

int main() {
  Trainer trainer;
  trainer.fit();
}
