#pragma once

#include "distributed/axis.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::distributed {

/// Tensors that go around an axis in one message: in each round every process sends
/// what it has to the next one, and gets what the one before it had. So each sees what
/// all have, and holds the parts of two, that which goes and that which comes.
///
/// To be called inside of an InsideGuard, like the function below.
class ACCEL_API PassedOn {
 public:
  /// `tensors`: this process's, of one dtype and of the other processes' sizes but
  /// for dimension `dim`, of which process r has `rows[r]` entries. `operation` is
  /// named in errors and must live as long as the program. Collective along further
  /// axes.
  PassedOn(
      Axis& axis,
      std::vector<at::Tensor> tensors,
      int64_t dim,
      std::vector<int64_t> rows,
      const char* operation);

  /// The tensors of the process that stands as many places back as this was called.
  /// They share memory with what goes on next: to be read only, and let go of before
  /// the next round. Collective.
  std::vector<at::Tensor> next();

 private:
  Axis& axis_;
  std::vector<at::Tensor> own_;
  int64_t dim_;
  /// Of what each process has now.
  std::vector<int64_t> rows_;
  const char* operation_;
  at::Tensor message_;
};

/// What the process `distance` places back sends to this one: tensors as of
/// `PassedOn`, of `rows[r]` rows where process r sends them. `distance` is from 1 to
/// the number of processes less one. Nothing is sent where nobody has rows.
/// Collective.
ACCEL_API std::vector<at::Tensor> sent_along(
    Axis& axis,
    std::vector<at::Tensor> tensors,
    int64_t dim,
    const std::vector<int64_t>& rows,
    int64_t distance,
    const char* operation);

} // namespace accel::distributed
