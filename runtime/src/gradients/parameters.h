#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  /// The gradient that it has left: where the program has put another one in its place,
  /// it has brought them together itself.
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> foreign_grad;
  /// The tensor that the program had made the gradient: it gets what is averaged, and
  /// stays the gradient, since others may share its memory.
  at::Tensor given;
  /// It has a place in a bucket.
  bool bucketed = false;
  /// The running backward has reached it.
  bool fired = false;
  /// Any has.
  bool ever_fired = false;
  /// It is a distributed tensor of which each process has a part: so is its
  /// gradient, and it has no place in a bucket.
  bool sharded = false;
  /// Its gradients are sparse on all processes, as all of them know: it has no
  /// place in a bucket.
  bool sparse = false;
  /// They have been sparse on one process and dense on another: it stays in its
  /// bucket from now on.
  bool mixed = false;

  /// Its version where all processes were known to have the same values.
  std::optional<int64_t> compared_version;
  /// Whether it had a gradient when the last backward that was compared began.
  bool had_gradient = false;

  /// What has been accumulated in the current window, between micro-steps;
  /// the tensor's own gradient is undefined then, so that no `zero_grad` can
  /// lose it.
  at::Tensor held;
  /// The gradient in front of the running backward, and its version; null where there
  /// was none.
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> found;
  int64_t found_version = 0;
  /// `release` has put it there.
  bool released = false;
  /// A copy of what was released into a backward that did not reach the parameter:
  /// another one of the same step does, perhaps, behind a `zero_grad`.
  at::Tensor kept;
  /// The gradient before the running backward, where that one's result is to
  /// be left out (a ghost's).
  at::Tensor before;
  /// The version of the zeros that stand in its place.
  int64_t zeros_version = 0;
};

/// Whether a gradient is not there, or strided and nothing but zeros. Collective where it is
/// distributed.
bool is_zeroed(const at::Tensor& grad);

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

  /// Before a backward: moves accumulated gradients back into `grad()`, and notes what
  /// is there.
  void release();
  /// Behind one that does not end a window: moves them out of it. Those that the
  /// backward did not reach, and that no other one of the window did, are the program's
  /// to clear, and stay. `hooks`: `fired` says which it did.
  void hold(bool hooks);
  bool holding() const;

  /// Behind the backward that ends a window: keeps what was released for parameters that
  /// it did not reach, until their optimizer steps or the next window begins.
  void keep_unreached(bool hooks);
  /// Before the next backward: where the program has cleared these gradients, they come
  /// back.
  void bring_back_kept();
  void forget_kept();

  /// Sets the gradients aside. A parameter that no backward has ever reached has zeros
  /// meanwhile: one that a program adds to by itself, in the backward of a
  /// torch::autograd::Function, expects to find a gradient.
  void set_aside();
  /// Brings those back that a backward did not reach, with what the program has added
  /// to them meanwhile; without, for a ghost.
  void bring_back(bool ghost);

 private:
  static bool reached(const Parameter& parameter, bool hooks);

  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::unordered_map<const c10::TensorImpl*, Parameter*> index_;
};

} // namespace accel::detail
