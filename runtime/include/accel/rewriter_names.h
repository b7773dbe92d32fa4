#pragma once

#include <accel/backward.h>
#include <accel/detail/call_model.h>
#include <accel/export.h>
#include <accel/gradient_state.h>
#include <accel/last_batch.h>
#include <accel/operations.h>

#include <torch/types.h>

#include <cstdint>
#include <tuple>
#include <utility>

/// What accel-migrate writes into programs and does nothing of its own: each is
/// a line over `Accelerator::distribute` and `Accelerator::full`, or gives back
/// what it is given. Programs written by hand do not need them.
namespace accel {

class Accelerator;

namespace detail {

template <typename Self>
class RewriterNames;

/// `Accelerator::reduce_for_metrics`.
ACCEL_API torch::Tensor reduce_for_metrics(
    const torch::Tensor& tensor,
    Reduction reduction);

} // namespace detail

/// The body of a loop over a data loader that does not train: made first, kept
/// until the end of the body (`Accelerator::loop_body`).
class ACCEL_API LoopBodyGuard {
 public:
  LoopBodyGuard(LoopBodyGuard&& other) noexcept;
  LoopBodyGuard& operator=(LoopBodyGuard&&) = delete;
  ~LoopBodyGuard();

 private:
  template <typename Self>
  friend class detail::RewriterNames;
  LoopBodyGuard();

  bool active_ = true;
  GradientState::Body body_;
};

namespace detail {

/// The names, as members of `Self`, which is `Accelerator`.
template <typename Self>
class RewriterNames {
 public:
  /// `distribute` of dimension `dim` of a tensor, or of each of several, of
  /// which it returns a `std::tuple`. Collective.
  torch::Tensor shard_batch(const torch::Tensor& tensor) const {
    return self().distribute(tensor);
  }
  torch::Tensor shard_batch(int64_t dim, const torch::Tensor& tensor) const {
    return self().distribute(tensor, dim);
  }
  template <typename... Tensors>
  auto shard_batch(
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest) const {
    return distribute_all(0, first, second, rest...);
  }
  template <typename... Tensors>
  auto shard_batch(
      int64_t dim,
      const torch::Tensor& first,
      const torch::Tensor& second,
      const Tensors&... rest) const {
    return distribute_all(dim, first, second, rest...);
  }

  /// `distribute`. Collective.
  torch::Tensor shard_state(const torch::Tensor& state, int64_t dim) const {
    return self().distribute(state, dim);
  }

  /// The number of a batch's samples, which all processes have.
  int64_t global_batch_size(const torch::Tensor& tensor) const {
    return tensor.size(0);
  }
  int64_t local_batch_size(int64_t global) const {
    return global;
  }

  /// `tensor.squeeze()`.
  torch::Tensor squeeze(const torch::Tensor& tensor) const {
    return tensor.squeeze();
  }

  /// The model's `forward` (or the function) of the inputs, with the tensors in
  /// them distributed. Collective.
  template <typename Model, typename... Inputs>
  auto data_parallel(Model&& model, const Inputs&... inputs)
      -> ForwardOf<Model, Inputs...> {
    return call_model(model, distributed_each(inputs)...);
  }

  /// `function()`.
  template <typename Function>
  auto replicated(Function&& function) const -> decltype(function()) {
    return std::forward<Function>(function)();
  }

  /// The model itself.
  template <typename Model>
  Model row_wise(Model model) const {
    return model;
  }

  /// The global value of a number (or of several, elementwise). In
  /// `match_single_device`, and of distributed tensors, `full`. Otherwise the
  /// mean (all processes weigh the same) or the sum of what the processes have
  /// computed from their batches; same shape and dtype, computed in float64.
  /// Collective. Throws where shapes or types differ, and for means of
  /// integers.
  torch::Tensor reduce_for_metrics(
      const torch::Tensor& tensor,
      Reduction reduction = torch::kMean) {
    return detail::reduce_for_metrics(tensor, reduction);
  }

  /// `gather_for_metrics` and `reduce_for_metrics` behind the loop, for what
  /// its last batch has left.
  LastBatch last_batch() {
    return LastBatch(self());
  }

  /// For loops over a data loader that do not train and may be left early. They
  /// do not need it any more: that a loop was left is seen by its batch, which is
  /// gone (`GradientState`). With it, it is also seen where something still holds
  /// a tensor of the batch.
  [[nodiscard]] LoopBodyGuard loop_body() {
    return {};
  }

 private:
  Self& self() {
    return static_cast<Self&>(*this);
  }
  const Self& self() const {
    return static_cast<const Self&>(*this);
  }

  /// One after the other, as all processes must.
  template <typename... Tensors>
  auto distribute_all(int64_t dim, const Tensors&... tensors) const {
    return std::tuple<decltype(self().distribute(tensors, dim))...>{
        self().distribute(tensors, dim)...};
  }

  template <typename T>
  T distributed_each(const T& value) const {
    if constexpr (has_tensors<T>::value) {
      return map_tensors(value, [this](const torch::Tensor& t) {
        return t.defined() && t.dim() > 0 ? self().distribute(t) : t;
      });
    } else {
      return value;
    }
  }
};

} // namespace detail
} // namespace accel
