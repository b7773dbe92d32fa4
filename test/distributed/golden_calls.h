#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// One call of an operator as PyTorch's operator tests have made it.
struct GoldenCall {
  /// "aten::add.Tensor".
  std::string name;
  c10::OperatorHandle op;
  /// In calls.jsonl, from 1.
  int64_t line;
  /// Index in the file's calls.
  size_t index;
};

/// The calls of test/distributed/golden, unpacked in a folder.
class GoldenCalls {
 public:
  /// Reads calls.jsonl and tensors.safetensors of `folder`; throws where they
  /// are not there. Calls of operators that this LibTorch does not have are left
  /// out and counted.
  explicit GoldenCalls(const std::string& folder);
  ~GoldenCalls();

  const std::vector<GoldenCall>& calls() const {
    return calls_;
  }
  int64_t unknown() const {
    return unknown_;
  }

  /// The arguments of a call, ready for `callBoxed`. Every tensor is a copy of
  /// its own with the recorded strides, and goes through `place` on its way.
  /// May be called by several threads at once.
  torch::jit::Stack arguments(
      const GoldenCall& call,
      const std::function<at::Tensor(const at::Tensor&)>& place) const;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
  std::vector<GoldenCall> calls_;
  int64_t unknown_ = 0;
};

} // namespace accel::distributed::test
