// The handlers of a main whose body is a try block begin behind the end of what is
// declared in it.
//
// RUN: rm -rf %t && mkdir -p %t && cp %s %t/train.cpp
// RUN: cd %t && not %accel_migrate --write train.cpp 2>&1 | FileCheck %s
// RUN: cmp %s %t/train.cpp
// In a block of its own, and in another function, it is migrated.
// RUN: sed 's/^int main() try {/int main() { try {/; s/^} catch (const std::exception\&) {}$/} catch (const std::exception\&) {} }/' %s > %t/train.cpp
// RUN: cd %t && %accel_migrate --write --quiet train.cpp && %clangxx train.cpp

#include <torch/torch.h>

#include <exception>
#include <iostream>

void greet() try {
  std::cout << "training" << std::endl;
} catch (const std::exception& error) {
  std::cout << error.what() << std::endl;
}

// CHECK: train.cpp:[[#@LINE+1]]:5: refused: the body of main is a try block, {{.*}} [ACL0102]
int main() try {
  greet();
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    net(torch::rand({8, 4})).sum().backward();
    optimizer.step();
  }
} catch (const std::exception&) {}
