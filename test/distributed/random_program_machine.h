#pragma once

#include "random_programs.h"

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// " [7, 3]S(0) grad", with the sum of the values.
std::string describe(const at::Tensor& tensor);

/// The state of a program that runs: plain where `mesh` is null.
struct Machine {
  const DeviceMesh* mesh = nullptr;
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<double> numbers;
  /// What was pushed, for people; only where it is asked for.
  std::string* trace = nullptr;

  at::Tensor& value(uint64_t i) {
    return values[i % values.size()];
  }
  /// A tensor that all processes have, placed at random; itself where all is plain.
  at::Tensor place(const at::Tensor& tensor, uint64_t seed) const;
  /// A new value, in place of the oldest where there are many.
  void push(const at::Tensor& tensor);
  size_t next = 0;
};

using Action = void (*)(Machine&, const Instruction&);
struct Named {
  const char* name;
  Action action;
  /// How often it is drawn.
  int weight = 1;
};
/// What instructions do.
const std::vector<Named>& actions();

} // namespace accel::distributed::test
