#include "gradients/buckets.h"

#include "distributed/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace accel::detail {
namespace {

/// A tensor over `size` elements of `flat` from `offset` on, laid out as
/// `like` is; keeps `flat` alive.
at::Tensor tensor_over(
    const at::Tensor& flat,
    int64_t offset,
    const at::Tensor& like) {
  auto* data = static_cast<char*>(flat.mutable_data_ptr()) +
      offset * static_cast<int64_t>(flat.element_size());
  const auto keep_alive = [flat](void*) {};
  const auto options =
      at::TensorOptions().dtype(flat.dtype()).device(flat.device());
  // Autograd and the optimizers are fastest where a gradient has its
  // parameter's strides.
  if (like.is_non_overlapping_and_dense()) {
    return at::from_blob(
        data, like.sizes(), like.strides(), keep_alive, options);
  }
  return at::from_blob(data, like.sizes(), keep_alive, options);
}

} // namespace

Bucket::Bucket(std::vector<Parameter*> parameters, bool plain_is_whole)
    : parameters_(std::move(parameters)), plain_is_whole_(plain_is_whole) {
  allocate();
}

void Bucket::allocate() {
  const at::NoGradGuard no_grad;
  int64_t numel = 0;
  for (const auto* parameter : parameters_) {
    numel += parameter->tensor.numel();
  }
  const auto& first = parameters_.front()->tensor;
  const auto count = static_cast<int64_t>(parameters_.size());
  flat_ = at::zeros(
      {numel + count},
      at::TensorOptions().dtype(first.dtype()).device(first.device()));
  sent_ = flat_.is_complex() ? at::view_as_real(flat_) : flat_;
  flags_ = flat_.narrow(0, numel, count);
  views_.clear();
  int64_t offset = 0;
  for (const auto* parameter : parameters_) {
    views_.push_back(tensor_over(flat_, offset, parameter->tensor));
    offset += parameter->tensor.numel();
  }
}

bool Bucket::attached(size_t index) const {
  return parameters_[index]->tensor.grad().is_same(views_[index]);
}

void Bucket::arm() {
  pending_ = 0;
  launched_ = false;
  in_parts_ = false;
  whole_.assign(parameters_.size(), false);
  bool held_elsewhere = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    pending_ += parameters_[i]->tensor.requires_grad() ? 1 : 0;
    held_elsewhere = held_elsewhere ||
        (!attached(i) &&
         (views_[i].use_count() > 1 || views_[i].storage().use_count() > 1));
  }
  if (held_elsewhere) {
    allocate();
  }
}

/// Fills the place of a gradient with this process's contribution to it: to
/// what the backward has computed and what was there before.
void Bucket::put(size_t index, const at::Tensor& gradient, int64_t rank) {
  auto& view = views_[index];
  auto before = std::exchange(parameters_[index]->before, at::Tensor());
  if (before.defined() && !before.is_same(view) &&
      !distributed::is_distributed(before)) {
    parameters_[index]->given = before;
  }
  const auto part = distributed::part_of_sum(gradient);
  const auto earlier =
      before.defined() ? distributed::part_of_sum(before) : at::Tensor();
  const bool parts = part.defined() || earlier.defined();
  in_parts_ = in_parts_ || parts;
  whole_[index] = !parts;
  // What all have in full counts once.
  const bool counts = !parts || rank == 0;
  const auto now = part.defined() ? part : counts ? gradient : at::Tensor();
  const auto then = earlier.defined() ? earlier : counts ? before : at::Tensor();
  if (!then.defined()) {
    now.defined() ? view.copy_(now) : view.zero_();
    return;
  }
  if (!then.is_same(view)) {
    view.copy_(then);
  }
  if (now.defined()) {
    view.add_(now);
  }
}

bool Bucket::receive(size_t index, int64_t rank, int64_t processes) {
  auto& parameter = *parameters_[index];
  TORCH_CHECK(
      !launched_,
      "accel: the gradient of '",
      parameter.name,
      "' changed twice in one backward, after it had been sent to the other "
      "processes. Backward passes inside of backward passes are not "
      "supported with several processes.");
  auto& grad = parameter.tensor.mutable_grad();
  if (grad.is_sparse()) {
    return !parameter.fired && --pending_ == 0;
  }
  if (plain_is_whole_) {
    put(index, at::Tensor(grad), rank);
    grad = views_[index];
  } else if (!attached(index)) {
    const auto part = distributed::part_of_sum(grad);
    // Divided again with what is averaged.
    views_[index].copy_(part.defined() ? part.mul(processes) : grad);
    grad = views_[index];
  }
  return !parameter.fired && --pending_ == 0;
}

bool Bucket::touched() const {
  return std::any_of(
      parameters_.begin(), parameters_.end(), [](const Parameter* parameter) {
        return parameter->used;
      });
}

void Bucket::launch(
    Communicator& communicator,
    std::optional<at::ScalarType> compression) {
  const at::NoGradGuard no_grad;
  std::vector<float> flags;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = *parameters_[i];
    auto& grad = parameter.tensor.mutable_grad();
    const bool sparse = grad.defined() && grad.is_sparse();
    flags.push_back(
        sparse               ? std::numeric_limits<float>::infinity()
            : parameter.used ? 1.0F
                             : 0.0F);
    if (parameter.fired && !sparse) {
      continue;
    }
    if (sparse || !grad.defined()) {
      views_[i].zero_();
    } else if (attached(i)) {
      // Should nobody use it, it keeps its exact value.
      grad = views_[i].clone();
      whole_[i] = true;
    } else if (plain_is_whole_) {
      put(i, at::Tensor(grad), communicator.rank());
    } else {
      views_[i].copy_(grad);
    }
  }
  if (plain_is_whole_) {
    if (!in_parts_) {
      flags_.copy_(at::tensor(flags));
      launched_ = true;
      waiter_ = [] {};
      return;
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (whole_[i] && communicator.rank() != 0) {
        views_[i].zero_();
      }
    }
  }
  flags_.copy_(at::tensor(flags));
  launched_ = true;
  if (compression && !flat_.is_complex() &&
      c10::elementSize(*compression) < static_cast<size_t>(flat_.element_size())) {
    // Divided before they are rounded: the sum must stay in range.
    compressed_ = flat_.to(*compression);
    if (!plain_is_whole_) {
      compressed_.narrow(0, 0, flat_.numel() - flags_.numel())
          .div_(communicator.size());
    }
    waiter_ = communicator.all_reduce_async(compressed_);
  } else {
    waiter_ = communicator.all_reduce_async(sent_);
  }
}

void Bucket::finish(
    Communicator& communicator, std::vector<SparseGradient>& sparse) {
  const at::NoGradGuard no_grad;
  const bool divided = compressed_.defined() || plain_is_whole_;
  std::exchange(waiter_, nullptr)();
  if (compressed_.defined()) {
    flat_.copy_(std::exchange(compressed_, at::Tensor()));
  }
  const auto used = (flags_.is_complex() ? at::real(flags_) : flags_)
                        .to(at::kCPU, at::kDouble, false, true)
                        .contiguous();
  if (!divided) {
    flat_.div_(communicator.size());
  }
  const double* flags = used.const_data_ptr<double>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = *parameters_[i];
    if (std::isinf(flags[i])) {
      if (plain_is_whole_) {
        parameter.used = false;
      } else {
        sparse.push_back({&parameter, views_[i]});
      }
      continue;
    }
    if (flags[i] > 0 && !attached(i)) {
      parameter.tensor.mutable_grad() = views_[i];
    }
    if (const auto given = std::exchange(parameter.given, at::Tensor());
        given.defined() && attached(i)) {
      given.copy_(views_[i]);
      parameter.tensor.mutable_grad() = given;
    }
    parameter.used = false;
  }
}

void Bucket::spoil() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = *parameters_[i];
    parameter.given.reset();
    parameter.used = false;
    if (attached(i)) {
      parameter.tensor.mutable_grad() =
          at::full_like(views_[i], std::numeric_limits<double>::quiet_NaN());
    }
  }
}

void Bucket::abandon() {
  std::exchange(waiter_, nullptr)();
  compressed_.reset();
}

std::vector<Bucket> make_buckets(
    const std::vector<Parameter*>& parameters,
    int64_t first_capacity,
    int64_t capacity,
    bool plain_is_whole) {
  struct Open {
    std::vector<Parameter*> parameters;
    int64_t bytes = 0;
  };
  std::vector<Open> open; // one for each dtype and device
  std::vector<Bucket> buckets;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const auto& tensor = (*it)->tensor;
    auto group = std::find_if(open.begin(), open.end(), [&](const Open& other) {
      const auto& first = other.parameters.front()->tensor;
      return first.dtype() == tensor.dtype() &&
          first.device() == tensor.device();
    });
    if (group == open.end()) {
      group = open.insert(open.end(), Open());
    }
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const int64_t limit = buckets.empty() ? first_capacity : capacity;
    if (!group->parameters.empty() && group->bytes + size > limit) {
      buckets.emplace_back(
          std::exchange(group->parameters, {}), plain_is_whole);
      group->bytes = 0;
    }
    group->parameters.push_back(*it);
    group->bytes += size;
  }
  for (auto& group : open) {
    buckets.emplace_back(std::move(group.parameters), plain_is_whole);
  }
  return buckets;
}

} // namespace accel::detail
