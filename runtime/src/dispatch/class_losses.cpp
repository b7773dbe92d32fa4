// Losses over classes (`nll_loss`, `nll_loss2d` and through them
// `cross_entropy`) as means over the global batch.
//
// Such a mean is not over samples: it is divided by the targets that count, or
// by the sum of their classes' weights. Padding (`ignore_index`, also -100,
// which is ignored by default) and class weights make that another number for
// each process. The processes add their numbers up, and each divides its own
// sum by
//
//     (what counts on all processes) * local / global      rows of the batch
//
// so that the mean over the processes, which weighs each by its samples
// (`backward(loss)`, `reduce_for_metrics(loss)`), is the mean of one device.
// A process whose targets are all ignored has the loss 0 instead of 0 / 0.

#include "dispatch/class_losses.h"

#include "dispatch/kernels.h"
#include "dispatch/share.h"

#include <accel/detail/communicator.h>

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss_native.h>
#include <ATen/ops/nll_loss2d_native.h>
#include <ATen/ops/nll_loss_native.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace accel::detail {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kIgnoredByDefault = -100;

thread_local bool counted = false;

/// The sum of the weights of the targets that count, float64, shape (1).
Tensor count_targets(
    const Tensor& target,
    const OptionalTensor& weight,
    int64_t ignore_index) {
  const auto counts = target.ne(ignore_index);
  if (!weight || !weight->defined()) {
    return counts.sum(at::kDouble).view(1);
  }
  const auto weights = weight->detach().to(at::kDouble).index_select(
      0, target.masked_fill(counts.logical_not(), 0).flatten().to(at::kLong));
  return weights.mul(counts.flatten()).sum().view(1);
}

/// Two numbers that tell tensors of targets apart, float64, shape (2).
Tensor fingerprint(const Tensor& target) {
  const auto values = target.flatten().to(at::kDouble);
  const auto places =
      at::arange(values.numel(), values.options()).remainder(1009).add_(1);
  return at::stack({values.sum(), values.dot(places)});
}

bool all_equal(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& other) {
    return at::equal(other, tensors.front());
  });
}

/// What this process's sum is divided by, float64, shape (1).
Tensor denominator(
    const BatchShare& share,
    const Tensor& target,
    const OptionalTensor& weight,
    int64_t ignore_index) {
  const at::NoGradGuard no_grad;
  auto& processes = communicator(Channel::kStatistics);
  const auto own = count_targets(target, weight, ignore_index);
  // As many rows everywhere: it does not matter whether these are this
  // process's targets or (gathered ones) those of all, on all processes.
  if (share.global % processes.size() == 0 &&
      share.global / processes.size() == share.local) {
    auto all = own.clone();
    processes.all_reduce(all);
    return all / static_cast<double>(processes.size());
  }
  const auto packed = at::cat({own, fingerprint(target)});
  const auto everyones = processes.all_gather(packed);
  if (all_equal(everyones)) {
    return own;
  }
  auto all = at::zeros_like(own);
  for (int64_t rank = 0; rank < processes.size(); ++rank) {
    if (!BatchShare::of(share.global, rank, processes.size()).ghost()) {
      all += everyones[rank].narrow(0, 0, 1);
    }
  }
  // Ghosts have weight 0; their loss only must be a number.
  return share.ghost() ? at::ones_like(own) : all * share.weight();
}

Tensor divided(
    const Tensor& sum,
    const BatchShare& share,
    const Tensor& target,
    const OptionalTensor& weight,
    int64_t ignore_index) {
  if ((weight && weight->defined()) || ignore_index != kIgnoredByDefault) {
    counted = true;
  }
  const auto by = denominator(share, target.detach(), weight, ignore_index);
  return sum / by.squeeze(0).to(sum.scalar_type());
}

/// A mean in a step on a part of the batch.
std::optional<BatchShare> share_of_mean(int64_t reduction) {
  return reduction == at::Reduction::Mean ? active_share() : std::nullopt;
}

/// `nll_loss` and `nll_loss2d`: LibTorch's own, and its sum over a part.
template <auto Native>
Tensor nll_loss(
    const Tensor& self,
    const Tensor& target,
    const OptionalTensor& weight,
    int64_t reduction,
    int64_t ignore_index) {
  const auto share = share_of_mean(reduction);
  if (!share) {
    return Native(self, target, weight, reduction, ignore_index);
  }
  const auto sum =
      Native(self, target, weight, at::Reduction::Sum, ignore_index);
  return divided(sum, *share, target, weight, ignore_index);
}

// With label smoothing it is the sum of two means, of which only one comes from
// nll_loss. Targets that are probabilities all count, each once.
Tensor cross_entropy_loss(
    const Tensor& self,
    const Tensor& target,
    const OptionalTensor& weight,
    int64_t reduction,
    int64_t ignore_index,
    double label_smoothing) {
  const bool smoothed = label_smoothing > 0 && self.sizes() != target.sizes();
  const auto share = smoothed ? share_of_mean(reduction) : std::nullopt;
  if (!share) {
    return at::native::cross_entropy_loss_symint(
        self, target, weight, reduction, ignore_index, label_smoothing);
  }
  const auto sum = at::native::cross_entropy_loss_symint(
      self, target, weight, at::Reduction::Sum, ignore_index, label_smoothing);
  return divided(sum, *share, target, weight, ignore_index);
}

} // namespace

bool take_counted_denominators() {
  return std::exchange(counted, false);
}

void add_class_losses(torch::Library& library) {
  library.impl("nll_loss", TORCH_FN(nll_loss<&at::native::nll_loss_symint>));
  library.impl("nll_loss2d", TORCH_FN(nll_loss<&at::native::nll_loss2d_symint>));
  library.impl("cross_entropy_loss", TORCH_FN(cross_entropy_loss));
}

} // namespace accel::detail
