#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace accel::detail {

/// One trainable tensor of a prepared model or optimizer, and what is known
/// about its gradient.
struct Parameter {
  at::Tensor tensor;
  /// "2.weight", for messages.
  std::string name;

  /// A backward has added to the gradient since it was averaged last.
  bool used = false;
  /// So has a backward that accel was not told about (`loss.backward()`).
  bool foreign = false;
  /// The tensor that the program had made the gradient: it gets what is averaged, and
  /// stays the gradient, since others may share its memory.
  at::Tensor given;
  /// It has a place in a bucket.
  bool bucketed = false;
  /// The running backward has reached it.
  bool fired = false;
  /// It is a distributed tensor of which each process has a part: so is its
  /// gradient, and it has no place in a bucket.
  bool sharded = false;
  /// Its gradients are sparse on all processes, as all of them know: it has no
  /// place in a bucket.
  bool sparse = false;
  /// They have been sparse on one process and dense on another: it stays in its
  /// bucket from now on.
  bool mixed = false;

  /// What has been accumulated in the current window, between micro-steps;
  /// the tensor's own gradient is undefined then, so that no `zero_grad` can
  /// lose it.
  at::Tensor held;
  /// The gradient before the running backward, where that one's result is to
  /// be left out (a ghost's).
  at::Tensor before;
};

/// All prepared parameters in the order in which they were prepared; each
/// once, also where models share it. Addresses are stable.
class Parameters {
 public:
  /// False where it is known already.
  bool add(const at::Tensor& tensor, std::string name);
  bool known(const at::Tensor& tensor) const;
  /// Null where it is not known.
  Parameter* find(const at::Tensor& tensor);

  /// Takes out the parameters that nobody else holds any more.
  std::vector<std::unique_ptr<Parameter>> prune();

  const std::vector<std::unique_ptr<Parameter>>& all() const {
    return parameters_;
  }

  /// Moves accumulated gradients out of and back into `grad()`.
  void hold();
  void release();
  bool holding() const;

  /// Sets the gradients aside / brings those back that a backward did not
  /// reach.
  void set_aside();
  void bring_back();

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::unordered_map<const c10::TensorImpl*, Parameter*> index_;
};

} // namespace accel::detail
