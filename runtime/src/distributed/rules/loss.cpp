#include "distributed/rules/common.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <iterator>
#include <vector>

// Losses. Each process does its rows; a sum or a mean over them is a part of a
// sum. Gradients of a mean are divided by the whole number of elements.

namespace accel::distributed::loss_rules {
namespace {

/// Whether a tensor is cut where it is not broadcast.
bool is_cut(const Call& call, size_t i) {
  const auto place = call.place(i);
  return place.is_shard() && call.tensor(i).size(place.dim()) != 1;
}

/// self, target, …, reduction: a pointwise function, then its sum or mean.
bool pointwise_loss(Call& call) {
  if (!call.info().writes.empty() || !(is_cut(call, 0) || is_cut(call, 1))) {
    return false;
  }
  const int at = call.index("reduction");
  const int64_t reduction = call.integer(at);
  call.set(at, int64_t{at::Reduction::None});
  if (!pointwise(call)) {
    call.set(at, reduction);
    return false;
  }
  if (reduction == at::Reduction::None) {
    return true;
  }
  const at::Tensor elements = call.local_result();
  const auto place = call.place(elements);
  const int64_t n = elements.size(place.dim());
  const auto local = call.local(elements);
  call.result() = reduction == at::Reduction::Sum
      ? local.sum()
      : local.mean().mul(static_cast<double>(call.rows(n, place)) / n);
  call.place_result(0, Partial(), c10::IntArrayRef{});
  return true;
}

/// The gradient of a mean over `count` elements is that of a sum, of a gradient
/// divided by `count`: kernels would count their own elements.
void use_sum(Call& call, int reduction, int64_t count) {
  if (call.integer(reduction) == at::Reduction::Mean) {
    call.set(reduction, int64_t{at::Reduction::Sum});
    call.set(0, call.tensor(0).div(static_cast<double>(count)));
  }
}

/// grad_output, self, target, …, reduction.
bool pointwise_loss_backward(Call& call) {
  const at::Tensor self = call.tensor(1);
  if (!call.info().writes.empty() || !(is_cut(call, 1) || is_cut(call, 2)) ||
      self.sizes() != call.tensor(2).sizes() || !self.is_floating_point() ||
      (call.tensor(0).dim() != 0 && call.tensor(0).sizes() != self.sizes())) {
    return false;
  }
  use_sum(call, call.index("reduction"), self.numel());
  return pointwise(call);
}

/// LibTorch's binary_cross_entropy leaves out dimensions of size one of self and
/// of the target before it compares their sizes: `[N, 1, 1]` and `[N]` go
/// together, and do not broadcast. Gives the target self's sizes; false where
/// that is not what they are.
bool fit_target(Call& call, size_t self, size_t target) {
  const at::Tensor of = call.tensor(self);
  const at::Tensor by = call.tensor(target);
  if (of.sizes() == by.sizes()) {
    return true;
  }
  const auto longer_than_one = [](c10::IntArrayRef sizes) {
    std::vector<int64_t> result;
    std::copy_if(
        sizes.begin(), sizes.end(), std::back_inserter(result),
        [](int64_t size) { return size != 1; });
    return result;
  };
  if (longer_than_one(of.sizes()) != longer_than_one(by.sizes())) {
    return false;
  }
  call.set(static_cast<int>(target), by.reshape(of.sizes()));
  return true;
}

bool binary_cross_entropy(Call& call) {
  return fit_target(call, 0, 1) && pointwise_loss(call);
}

/// CUDA's kernel broadcasts where the one for the result did not.
bool binary_cross_entropy_backward(Call& call) {
  const bool fits = call.tensor(1).is_cpu()
      ? fit_target(call, 1, 2)
      : call.tensor(1).sizes() == call.tensor(2).sizes();
  return fits && pointwise_loss_backward(call);
}

/// A row of classes and a target for each row, or `[N, C, H, W]` and `[N, H, W]`.
/// The placement of the target where the input is placed so; Replicate where the
/// classes are cut.
Placement of_target(const Placement& input) {
  if (!input.is_shard() || input.dim() == 1) {
    return Replicate();
  }
  return input.dim() == 0 ? input : input.with_dim(input.dim() - 1);
}

/// The placement of the input where the target is placed so.
Placement of_classes(const Placement& target) {
  if (!target.is_shard() || target.dim() == 0) {
    return target;
  }
  return target.with_dim(target.dim() + 1);
}

/// Where the input's rows are cut, or the target's; Replicate where neither is.
Placement rows_of(const Call& call, size_t input, size_t target) {
  const auto place = call.place(input);
  if (of_target(place).is_shard()) {
    return place;
  }
  const auto of_input = of_classes(call.place(target));
  return of_input.is_shard() ? of_input : Replicate();
}

/// self, target, weight, reduction, ignore_index: loss and total weight.
bool nll_loss(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = rows_of(call, 0, 1);
  if (!call.info().writes.empty() || self.dim() < 2 || !place.is_shard() ||
      call.tensor(1).dim() != self.dim() - 1) {
    return false;
  }
  const int64_t reduction = call.integer(3);
  const Sizes sizes(
      call.tensor(1).sizes().begin(), call.tensor(1).sizes().end());
  call.use(0, place);
  call.use(1, of_target(place));
  call.use_whole(2);
  if (reduction == at::Reduction::Mean) {
    call.set(3, int64_t{at::Reduction::Sum});
  }
  call.run();
  if (reduction == at::Reduction::None) {
    call.place_result(0, of_target(place), sizes);
    return true;
  }
  const auto total = summed(call, call.local_result(1));
  call.result(1) = total;
  if (reduction == at::Reduction::Mean) {
    // No weight at all gives 0 / 0, as on one device.
    call.result(0) = call.local_result(0).div(total);
  }
  call.place_result(0, Partial(), c10::IntArrayRef{});
  return true;
}

/// grad_output, self, target, weight, reduction, ignore_index, total_weight.
bool nll_loss_backward(Call& call) {
  const at::Tensor self = call.tensor(1);
  const auto place = rows_of(call, 1, 2);
  if (!call.info().writes.empty() || self.dim() < 2 || !place.is_shard() ||
      call.tensor(2).dim() != self.dim() - 1) {
    return false;
  }
  const bool each = call.integer(4) == at::Reduction::None;
  call.use(0, each ? of_target(place) : Replicate());
  call.use(1, place);
  call.use(2, of_target(place));
  call.use_whole(3);
  call.use_whole(6);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

/// The loss of each row, or this process's part of their sum or mean.
void place_rows(
    Call& call,
    const Placement& place,
    int64_t n,
    int64_t reduction) {
  if (reduction == at::Reduction::None) {
    call.place_result(0, place, n);
    return;
  }
  if (reduction == at::Reduction::Mean) {
    const auto share = static_cast<double>(call.rows(n, place)) / n;
    call.result(0) = call.local_result(0).mul(share);
  }
  call.place_result(0, Partial());
}

/// multi_margin_loss: self `[N, C]`, target `[N]`, p, margin, weight, reduction.
bool multi_margin_loss(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = first_cut(call, {0, 1});
  if (!call.info().writes.empty() || self.dim() != 2 || !place.is_shard(0) ||
      call.tensor(1).dim() != 1) {
    return false;
  }
  const int64_t reduction = call.integer(5);
  call.use(0, place);
  call.use(1, place);
  call.use_whole(4);
  call.run();
  place_rows(call, place, self.size(0), reduction);
  return true;
}

bool multi_margin_loss_backward(Call& call) {
  const at::Tensor self = call.tensor(1);
  const auto place = first_cut(call, {1, 2});
  if (!call.info().writes.empty() || self.dim() != 2 || !place.is_shard(0) ||
      call.tensor(2).dim() != 1) {
    return false;
  }
  const bool each = call.integer(6) == at::Reduction::None;
  use_sum(call, 6, self.size(0));
  call.use(0, each ? place : Replicate());
  call.use(1, place);
  call.use(2, place);
  call.use_whole(5);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

/// self `[N, C]`, target `[N, C]`, reduction: loss, and which are targets.
bool multilabel_margin_loss(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = first_cut(call, {0, 1});
  if (!call.info().writes.empty() || self.dim() != 2 || !place.is_shard(0) ||
      call.tensor(1).sizes() != self.sizes()) {
    return false;
  }
  const int64_t reduction = call.integer(2);
  call.use(0, place);
  call.use(1, place);
  call.run();
  place_rows(call, place, self.size(0), reduction);
  call.place_result(1, place, self.sizes());
  return true;
}

/// grad_output, self, target, reduction, is_target.
bool multilabel_margin_loss_backward(Call& call) {
  const at::Tensor self = call.tensor(1);
  const auto place = first_cut(call, {1, 2, 4});
  if (!call.info().writes.empty() || self.dim() != 2 || !place.is_shard(0) ||
      call.tensor(2).sizes() != self.sizes() ||
      call.tensor(4).sizes() != self.sizes()) {
    return false;
  }
  const bool each = call.integer(3) == at::Reduction::None;
  use_sum(call, 3, self.size(0));
  call.use(0, each ? place : Replicate());
  call.use(1, place);
  call.use(2, place);
  call.use(4, place);
  call.run();
  call.place_result(0, place, self.sizes());
  return true;
}

} // namespace

const Family& family() {
  static const char* const part = "nothing; sums and means are P";
  static const char* const rows_of_classes = "rows, positions of an image";
  static const Family rows{
      {"aten::mse_loss", pointwise_loss, "S", part},
      {"aten::smooth_l1_loss", pointwise_loss, "S", part},
      {"aten::huber_loss", pointwise_loss, "S", part},
      {"aten::soft_margin_loss", pointwise_loss, "S", part},
      {"aten::binary_cross_entropy", binary_cross_entropy, "S", part},
      {"aten::binary_cross_entropy_with_logits", pointwise_loss, "S", part},
      {"aten::mse_loss_backward", pointwise_loss_backward, "S", "nothing"},
      {"aten::smooth_l1_loss_backward", pointwise_loss_backward, "S", "nothing"},
      {"aten::huber_loss_backward", pointwise_loss_backward, "S", "nothing"},
      {"aten::soft_margin_loss_backward", pointwise_loss_backward, "S", "nothing"},
      {"aten::binary_cross_entropy_backward", binary_cross_entropy_backward, "S",
       "nothing"},
      {"aten::nll_loss_forward", nll_loss, rows_of_classes, "the total weight"},
      {"aten::nll_loss2d_forward", nll_loss, rows_of_classes, "the total weight"},
      {"aten::nll_loss_backward", nll_loss_backward, rows_of_classes, "nothing"},
      {"aten::nll_loss2d_backward", nll_loss_backward, rows_of_classes, "nothing"},
      {"aten::multi_margin_loss", multi_margin_loss, "rows", part},
      {"aten::multi_margin_loss_backward", multi_margin_loss_backward, "rows", "nothing"},
      {"aten::multilabel_margin_loss_forward", multilabel_margin_loss, "rows", part},
      {"aten::multilabel_margin_loss_backward", multilabel_margin_loss_backward,
       "rows", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::loss_rules
