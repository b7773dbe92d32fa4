// Two tensors that hold a row for each sample, combined so that every sample
// meets every other: predictions of shape (B, 1) and targets of shape (B)
// broadcast to (B, B). On one device that is a mistake that goes unnoticed; on
// a part of the batch, b rows, it is another mistake: (b, b) of the (B, B)
// pairs. No weight can make that the number of one device, so it is an error.
//
// Looked at where rows of predictions meet rows of targets: losses, and the
// arithmetic that losses and accuracies are written with.

#include "dispatch/kernels.h"
#include "dispatch/share.h"

#include <ATen/ATen.h>
#include <ATen/CPUFunctions.h>
#include <ATen/NativeFunctions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace accel::detail {
namespace {

using at::Tensor;

/// Whether broadcasting makes both tensors larger.
bool both_grow(at::IntArrayRef a, at::IntArrayRef b) {
  bool a_grows = false;
  bool b_grows = false;
  const size_t dims = std::max(a.size(), b.size());
  for (size_t i = 1; i <= dims; ++i) {
    const int64_t in_a = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t in_b = i <= b.size() ? b[b.size() - i] : 1;
    a_grows = a_grows || (in_a == 1 && in_b > 1);
    b_grows = b_grows || (in_b == 1 && in_a > 1);
  }
  return a_grows && b_grows;
}

/// Where the two come from, as far as that is known.
enum class Operands {
  /// Predictions and targets.
  kLoss,
  kAny,
  /// One of them may be a weight.
  kFactors,
};

/// Whether both have the rows of this process in dimension 0, and broadcasting
/// puts them into different dimensions. In a loss there may be several rows
/// for each sample.
bool rows_meet_rows(
    at::IntArrayRef a,
    at::IntArrayRef b,
    int64_t rows,
    Operands operands) {
  const bool leads = operands == Operands::kLoss ? a[0] % rows == 0
                                                 : a[0] == rows;
  return a.size() != b.size() && a[0] == b[0] && leads && both_grow(a, b);
}

/// The same where this process has one row, which does not grow: (1, 1) and
/// (1). Only where a parameter of one element is not what is meant.
bool one_row_meets_one(at::IntArrayRef a, at::IntArrayRef b, int64_t rows) {
  const auto ones = [](at::IntArrayRef sizes) {
    return std::all_of(
        sizes.begin(), sizes.end(), [](int64_t size) { return size == 1; });
  };
  return rows == 1 && a.size() != b.size() && ones(a) && ones(b);
}

/// The same as a column and a row of the samples, (b, 1) and (1, b).
bool column_meets_row(at::IntArrayRef a, at::IntArrayRef b, int64_t rows) {
  const auto one_way = [rows](at::IntArrayRef column, at::IntArrayRef row) {
    return column[0] == rows && row[0] == 1 && row[1] == rows &&
        column[1] == 1;
  };
  return rows > 1 && a.size() == 2 && b.size() == 2 &&
      (one_way(a, b) || one_way(b, a));
}

void check(
    const char* operation,
    const Tensor& a,
    const Tensor& b,
    Operands operands) {
  const auto x = a.sizes();
  const auto y = b.sizes();
  if (x == y || x.empty() || y.empty()) {
    return;
  }
  const auto share = active_share();
  if (!share || share->global <= 1) {
    return;
  }
  const int64_t rows = share->rows();
  TORCH_CHECK(
      !rows_meet_rows(x, y, rows, operands) &&
          (operands == Operands::kFactors ||
           (!column_meets_row(x, y, rows) && !one_row_meets_one(x, y, rows))),
      "accel: ",
      operation,
      " was given tensors of sizes ",
      x,
      " and ",
      y,
      ", where this process has ",
      rows,
      " of the ",
      share->global,
      " rows of the batch. Broadcasting would pair every row with every other "
      "row, which a process cannot do that has only some of them (and which is "
      "seldom meant). Give both the same shape: target.view_as(prediction), or "
      "prediction.squeeze(1).");
}

Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  check("mse_loss", self, target, Operands::kLoss);
  return at::cpu::mse_loss(self, target, reduction);
}

Tensor smooth_l1_loss(
    const Tensor& self,
    const Tensor& target,
    int64_t reduction,
    double beta) {
  check("smooth_l1_loss", self, target, Operands::kLoss);
  return at::cpu::smooth_l1_loss(self, target, reduction, beta);
}

Tensor huber_loss(
    const Tensor& self,
    const Tensor& target,
    int64_t reduction,
    double delta) {
  check("huber_loss", self, target, Operands::kLoss);
  return at::native::huber_loss(self, target, reduction, delta);
}

// Composed of others, so seen above autograd.
Tensor l1_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  check("l1_loss", self, target, Operands::kLoss);
  return at::native::l1_loss(self, target, reduction);
}

// torch::nn's losses call it before the functions above.
std::vector<Tensor> broadcast_tensors(at::TensorList tensors) {
  if (tensors.size() == 2) {
    check(
        "a loss (or broadcast_tensors)",
        tensors[0],
        tensors[1],
        Operands::kLoss);
  }
  return at::native::broadcast_tensors(tensors);
}

Tensor sub(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  check("a subtraction", self, other, Operands::kAny);
  return at::cpu::sub(self, other, alpha);
}

Tensor mul(const Tensor& self, const Tensor& other) {
  check("a multiplication", self, other, Operands::kFactors);
  return at::cpu::mul(self, other);
}

Tensor eq(const Tensor& self, const Tensor& other) {
  check("a comparison", self, other, Operands::kAny);
  return at::cpu::eq(self, other);
}

Tensor ne(const Tensor& self, const Tensor& other) {
  check("a comparison", self, other, Operands::kAny);
  return at::cpu::ne(self, other);
}

} // namespace

void add_row_checks(torch::Library& autograd, torch::Library& cpu) {
  for (auto* library : {&autograd, &cpu}) {
    library->impl("l1_loss", TORCH_FN(l1_loss));
    library->impl("broadcast_tensors", TORCH_FN(broadcast_tensors));
  }
  cpu.impl("mse_loss", TORCH_FN(mse_loss));
  cpu.impl("smooth_l1_loss", TORCH_FN(smooth_l1_loss));
  cpu.impl("huber_loss", TORCH_FN(huber_loss));
  cpu.impl("sub.Tensor", TORCH_FN(sub));
  cpu.impl("mul.Tensor", TORCH_FN(mul));
  cpu.impl("eq.Tensor", TORCH_FN(eq));
  cpu.impl("ne.Tensor", TORCH_FN(ne));
}

} // namespace accel::detail
