#pragma once

#include <accel/export.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace torch::jit {
struct Module;
} // namespace torch::jit

namespace accel {

/// A TorchScript model in the place where it is called on rows of a batch; see
/// `Accelerator::row_wise`.
class ACCEL_API RowWiseModel {
 public:
  /// Shares `model`. `look`: whether `forward` is to look at it before.
  RowWiseModel(const torch::jit::Module& model, bool look);

  /// What the model's `forward` returns.
  c10::IValue forward(std::vector<c10::IValue> inputs);

 private:
  std::shared_ptr<torch::jit::Module> model_;
  const bool look_;
};

} // namespace accel
