#include "parallel/unit_gradients.h"

#include "core/operation_log.h"
#include "distributed/collectives.h"
#include "distributed/memory_order.h"
#include "distributed/part.h"
#include "distributed/unit_member.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <c10/util/hash.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace accel::parallel {

using distributed::Axis;
using distributed::DeviceMesh;
using distributed::InsideGuard;
using distributed::Part;
using distributed::part_at_rest;
using distributed::part_of;
using distributed::Placement;
using distributed::Shard;

std::vector<Placement> places_of(
    const std::vector<Axis*>& axes, const at::Tensor& tensor) {
  std::vector<Placement> places(axes.size());
  at::Tensor inner = tensor;
  while (const Part* part = part_at_rest(inner)) {
    const auto axis = std::find(axes.begin(), axes.end(), part->axis);
    if (axis == axes.end()) {
      return {};
    }
    places[axis - axes.begin()] = part->placement;
    inner = part->local;
  }
  return places;
}

bool any_cut(const std::vector<Placement>& places) {
  return std::any_of(places.begin(), places.end(), [](const Placement& place) {
    return place.is_shard();
  });
}

namespace {

/// A gradient along `axes` in the places of its parameter there. Where that is whole a
/// sum stays one: less is sent for the sum of each process's rows than for its rows of
/// the sum.
at::Tensor beside(
    const at::Tensor& gradient,
    const at::Tensor& parameter,
    const std::vector<Axis*>& axes) {
  const auto from = places_of(axes, gradient);
  auto to = places_of(axes, parameter);
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = to[i].is_replicate() && from[i].is_sum() ? from[i] : to[i];
  }
  return from == to
             ? gradient
             : distributed::redistribute(gradient, DeviceMesh(axes), to);
}

} // namespace

at::Tensor beside_parameter(
    const at::Tensor& gradient,
    const c10::weak_intrusive_ptr<at::TensorImpl>& parameter,
    const std::vector<Axis*>& axes) {
  const auto impl = parameter.lock();
  if (!impl || !gradient.defined() || gradient.layout() != at::kStrided) {
    return gradient;
  }
  const auto places = places_of(axes, at::Tensor(impl));
  if (!any_cut(places) || places_of(axes, gradient).empty()) {
    return gradient;
  }
  auto rows = beside(gradient, at::Tensor(impl), axes);
  if (places_of(axes, rows) != places) {
    rows = distributed::redistribute(rows, DeviceMesh(axes), places);
  }
  Part* part = part_of(rows);
  if (rows.requires_grad() || part == nullptr ||
      part_of(part->local) != nullptr ||
      part->local.storage().nbytes() == part->local.nbytes()) {
    return rows;
  }
  // Rows of the sum over the processes, which can go now.
  const InsideGuard inside;
  return distributed::make_tensor(
      *part->axis,
      part->local.clone(),
      part->placement,
      rows.sizes(),
      rows.strides(),
      /*exact=*/true);
}

/// One gradient that is summed: where this process's part of it goes.
struct GradientRows {
  at::Tensor parameter;
  at::Tensor before;
  /// The axes along which `rows` are parts of sums, the innermost first.
  std::vector<Axis*> sums;
  /// What is summed along dp_shard, of which each process keeps its rows: one process's
  /// behind the other's. Undefined where the rows are there.
  at::Tensor parts;
  at::Tensor rows;
};

namespace {

/// A gradient that can wait: a part of a sum along an axis in front of
/// dp_shard, or along none of these. What it is along dp_shard and behind.
struct AtShard {
  Axis* outer = nullptr;
  at::Tensor gradient;
};

std::optional<AtShard> at_shard(const at::Tensor& gradient, const Axis& axis) {
  const Part* part = gradient.defined() ? part_of(gradient) : nullptr;
  if (part == nullptr) {
    return std::nullopt;
  }
  if (part->axis == &axis) {
    return AtShard{nullptr, gradient};
  }
  if (part->axis->mesh() == axis.mesh() && part->axis->index() < axis.index() &&
      part->placement.is_sum()) {
    return AtShard{part->axis, part->local};
  }
  return std::nullopt;
}

/// Whole tensors whose sum along `axis` it is, plain or distributed along the axes behind
/// that; null where it is something else.
const Part* parts_of_sum(const at::Tensor& gradient, const Axis& axis) {
  const Part* part = part_of(gradient);
  return part != nullptr && part->axis == &axis && part->placement.is_sum() &&
                 part->local.layout() == at::kStrided
             ? part
             : nullptr;
}

/// Along dp_shard a parameter of a unit is cut, or whole: then it is cut along an axis
/// behind that only (the bias of a layer whose rows tp has). Null for another one.
Part* part_in_unit(const at::Tensor& parameter, const Axis& axis) {
  Part* part = part_at_rest(parameter);
  if (part == nullptr || part->axis->mesh() != axis.mesh() ||
      part->axis->index() < axis.index() || !part->placement.is_shard()) {
    return nullptr;
  }
  return part->axis != &axis || part->unit ? part : nullptr;
}

at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1});
}

/// The processes' parts of `whole`, one behind the other.
at::Tensor in_pieces(
    const at::Tensor& whole, const distributed::GatheredMember& member) {
  if (member.is_in_rows()) {
    return distributed::laid_out(whole, member.strides);
  }
  std::vector<at::Tensor> pieces;
  for (int64_t rank = 0; rank < member.part.axis->size(); ++rank) {
    const auto [begin, end] =
        member.part.axis->range(member.sizes[member.dim], {}, rank);
    pieces.push_back(
        whole.narrow(member.dim, begin, end - begin).reshape({-1}));
  }
  return at::cat(pieces);
}

/// The rows of those that have parts, in one message for each dtype, which are
/// started. Returns what waits for them.
std::vector<accel::detail::Communicator::Waiter> sum_along_shard(
    std::vector<GradientRows>& all, Axis& axis) {
  std::vector<accel::detail::Communicator::Waiter> waits;
  for (size_t first = 0; first < all.size(); ++first) {
    if (!all[first].parts.defined()) {
      continue;
    }
    accel::detail::SummedPieces message;
    std::vector<distributed::GatheredMember> members;
    uint64_t detail = 0;
    const auto dtype = all[first].parts.scalar_type();
    for (size_t i = first; i < all.size(); ++i) {
      if (all[i].parts.defined() && all[i].parts.scalar_type() == dtype) {
        message.pieces.push_back(std::exchange(all[i].parts, at::Tensor()));
        message.sums.push_back(all[i].rows);
        members.emplace_back(*part_at_rest(all[i].parameter));
        for (const int64_t n : members.back().part.sizes) {
          detail = c10::hash_combine(detail, static_cast<size_t>(n));
        }
      }
    }
    for (int64_t rank = 0; rank < axis.size(); ++rank) {
      for (const auto& member : members) {
        const auto [begin, end] = member.bytes_of(rank);
        message.begins.push_back(begin / member.element_size);
        message.counts.push_back((end - begin) / member.element_size);
      }
    }
    auto& traffic = distributed::traffic();
    ++traffic.exchanges;
    for (const auto& piece : message.pieces) {
      traffic.bytes += static_cast<int64_t>(piece.nbytes());
    }
    const accel::detail::PurposeGuard purpose(
        "backward", members[0].part.sizes, detail);
    waits.push_back(axis.communicator("backward").sum_pieces_async(message));
  }
  return waits;
}

/// The sums of the rows along one of the other axes, over the processes that have the
/// same ones, in one message for each dtype.
void sum_along(std::vector<GradientRows>& all, Axis& axis) {
  const auto is_next = [&axis](const GradientRows& one) {
    return !one.sums.empty() && one.sums.front() == &axis;
  };
  for (auto& first : all) {
    if (!is_next(first)) {
      continue;
    }
    const auto dtype = first.rows.scalar_type();
    const auto sizes = part_at_rest(first.parameter)->sizes;
    std::vector<at::Tensor> places;
    for (auto& one : all) {
      if (is_next(one) && one.rows.scalar_type() == dtype) {
        one.sums.erase(one.sums.begin());
        places.push_back(flat(one.rows));
      }
    }
    auto sum = at::cat(places);
    auto& traffic = distributed::traffic();
    ++traffic.reductions;
    traffic.bytes += static_cast<int64_t>(sum.nbytes());
    const accel::detail::PurposeGuard purpose(
        "backward", sizes, static_cast<uint64_t>(sum.numel()));
    axis.communicator("backward").all_reduce(sum);
    int64_t at = 0;
    for (auto& place : places) {
      place.copy_(sum.narrow(0, at, place.numel()));
      at += place.numel();
    }
  }
}

} // namespace

struct UnitGradients::Sum {
  const distributed::Unit* unit;
  std::vector<GradientRows> all;
  std::vector<accel::detail::Communicator::Waiter> waits;
};

// ---- A backward.

UnitGradients::Backward::Backward(UnitGradients* gradients)
    : gradients_(gradients) {
  if (gradients_ != nullptr) {
    gradients_->running_ = true;
  }
}

UnitGradients::Backward::~Backward() {
  if (gradients_ != nullptr) {
    gradients_->give_up();
  }
}

void UnitGradients::Backward::finish() {
  if (gradients_ == nullptr) {
    return;
  }
  auto& gradients = *gradients_;
  while (!gradients.order_.empty()) {
    gradients.sum(*gradients.order_.front());
  }
  gradients.finish_sum();
  for (auto& [unit, of_unit] : gradients.units_) {
    if (of_unit.seen > 0) {
      of_unit.last = of_unit.seen;
    }
  }
}

void UnitGradients::give_up() noexcept {
  for (auto* of_unit : order_) {
    for (auto& waiting : of_unit->waiting) {
      auto impl = waiting.parameter.lock();
      if (impl && waiting.before.defined()) {
        at::Tensor(std::move(impl)).mutable_grad() = std::move(waiting.before);
      }
    }
    of_unit->waiting.clear();
    of_unit->arrived = 0;
  }
  order_.clear();
  unit_of_.clear();
  // Models that are gone.
  for (auto one = units_.begin(); one != units_.end();) {
    one->second.seen = 0;
    one =
        one->second.unit.use_count() == 1 ? units_.erase(one) : std::next(one);
  }
  running_ = false;
  summing_ = false;
  if (const auto sum = std::exchange(on_the_way_, nullptr)) {
    try {
      for (const auto& wait : sum->waits) {
        wait();
      }
    } catch (...) {
      // The exception that has ended the backward says what there is to say.
    }
    for (auto& one : sum->all) {
      one.parameter.mutable_grad() = std::move(one.before);
    }
  }
}

void UnitGradients::expect(
    const distributed::UnitPtr& unit,
    const std::vector<at::Tensor>& parameters) {
  auto& of_unit = units_[unit.get()];
  of_unit.unit = unit;
  of_unit.most = parameters.size();
  for (const auto& parameter : parameters) {
    unit_of_[parameter.unsafeGetTensorImpl()] = &of_unit;
  }
}

bool UnitGradients::put_off(
    const at::Tensor& parameter, const at::Tensor& gradient) {
  const Axis& axis = *axes_[shard_];
  if (!running_ || summing_ || part_in_unit(parameter, axis) == nullptr) {
    return false;
  }
  // What came before has been accumulated by now.
  sum_complete();
  const auto found = unit_of_.find(parameter.unsafeGetTensorImpl());
  if (found == unit_of_.end()) {
    return false;
  }
  OfUnit& of_unit = *found->second;
  if (on_the_way_ && on_the_way_->unit == of_unit.unit.get()) {
    finish_sum(); // It is added to.
  }
  if (of_unit.arrived == 0) {
    order_.push_back(&of_unit);
  }
  ++of_unit.arrived;
  ++of_unit.seen;
  const auto found_at = at_shard(gradient, axis);
  // Where there is a sum along another axis, the processes along that must
  // decide alike.
  if (!found_at || gradient.sizes() != parameter.sizes() ||
      gradient.scalar_type() != parameter.scalar_type() ||
      (found_at->outer == nullptr &&
       parts_of_sum(found_at->gradient, axis) == nullptr)) {
    return false;
  }
  for (const auto& waiting : of_unit.waiting) {
    if (waiting.parameter._unsafe_get_target() ==
        parameter.unsafeGetTensorImpl()) {
      return true; // A backward within this one: parts are added to parts.
    }
  }
  of_unit.waiting.push_back(
      {Weak(parameter.getIntrusivePtr()),
       std::exchange(at::Tensor(parameter).mutable_grad(), at::Tensor())});
  return true;
}

void UnitGradients::sum_complete() {
  if (summing_) {
    return;
  }
  for (size_t i = 0; i < order_.size();) {
    auto& of_unit = *order_[i];
    const size_t wanted =
        of_unit.last > 0 ? std::min(of_unit.last, of_unit.most) : of_unit.most;
    const bool complete =
        of_unit.arrived >= wanted &&
        std::all_of(
            of_unit.waiting.begin(),
            of_unit.waiting.end(),
            [](const Waiting& waiting) {
              auto impl = waiting.parameter.lock();
              return impl && at::Tensor(std::move(impl)).grad().defined();
            });
    if (complete) {
      sum(of_unit); // Takes it out of `order_`.
    } else {
      ++i;
    }
  }
}

void UnitGradients::set_rows(
    std::vector<GradientRows>& all, std::vector<at::Tensor> gradients) const {
  Axis& axis = *axes_[shard_];
  const std::vector<Axis*> further(axes_.begin() + shard_ + 1, axes_.end());
  const std::vector<Axis*> from_shard(axes_.begin() + shard_, axes_.end());
  const InsideGuard inside;
  // Of those that are sums along dp_shard: of which that is, all processes know alike.
  std::vector<at::Tensor> parts;
  for (const auto& gradient : gradients) {
    if (const Part* sum = parts_of_sum(gradient, axis)) {
      parts.push_back(sum->local);
    }
  }
  const auto alike = distributed::agree(axis, parts, "backward");
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    GradientRows& rows = all[i];
    Part& own = *part_at_rest(rows.parameter);
    const auto dtype = reduce_dtype_.value_or(rows.parameter.scalar_type());
    const at::Tensor gradient = std::exchange(gradients[i], at::Tensor());
    if (parts_of_sum(gradient, axis) == nullptr) {
      const auto placed = distributed::redistribute(
          gradient, DeviceMesh(from_shard), places_of(from_shard, rows.parameter));
      rows.rows = distributed::leaf_of(placed).to(dtype);
    } else {
      const bool is_cut = own.axis == &axis;
      at::Tensor local = std::exchange(parts[next], at::Tensor());
      if (!alike[next++]) {
        local = distributed::gather_all(local, "backward");
      }
      local = beside(local, is_cut ? own.local : rows.parameter, further);
      auto sums = std::exchange(rows.sums, {});
      const auto places = places_of(further, local);
      for (size_t k = further.size(); k-- > 0;) {
        if (places[k].is_sum()) {
          rows.sums.push_back(further[k]);
        }
      }
      const auto plain = distributed::leaf_of(local);
      if (is_cut) {
        const distributed::GatheredMember member(own);
        rows.parts = in_pieces(plain.to(dtype), member);
        rows.rows = at::empty_like(
            distributed::innermost(own).local,
            rows.parts.options().pinned_memory(false));
      } else {
        rows.sums.push_back(&axis);
        rows.rows = plain.to(dtype);
      }
      rows.sums.insert(rows.sums.end(), sums.begin(), sums.end());
    }
    if (!rows.parts.defined()) {
      // Is written: of memory of its own, which lies as the parameter's.
      const auto like = distributed::leaf_of(rows.parameter);
      rows.rows = distributed::laid_out(rows.rows, like.strides());
      if (!rows.sums.empty()) {
        rows.rows = rows.rows.clone();
      }
    }
  }
}

void UnitGradients::sum(OfUnit& of_unit) {
  finish_sum(); // One at a time: their memory is that of a unit.
  order_.erase(std::find(order_.begin(), order_.end(), &of_unit));
  of_unit.arrived = 0;
  auto waiting = std::exchange(of_unit.waiting, {});
  const at::NoGradGuard no_grad;
  Axis& axis = *axes_[shard_];
  std::vector<GradientRows> all;
  // What they are along dp_shard and behind.
  std::vector<at::Tensor> gradients;
  summing_ = true;
  for (auto& one : waiting) {
    auto impl = one.parameter.lock();
    if (!impl) {
      continue;
    }
    GradientRows rows{at::Tensor(std::move(impl)), one.before, {}, {}, {}};
    auto& grad = rows.parameter.mutable_grad();
    if (!grad.defined()) {
      grad = std::move(one.before); // It never came to be accumulated.
      continue;
    }
    const auto found = at_shard(grad, axis);
    if (part_in_unit(rows.parameter, axis) == nullptr || !found ||
        (found->outer == nullptr &&
         parts_of_sum(found->gradient, axis) == nullptr)) {
      // A hook has made something else of it.
      grad = beside_parameter(grad, one.parameter, axes_);
      if (one.before.defined()) {
        grad = one.before.add_(grad);
      }
      continue;
    }
    if (found->outer != nullptr) {
      rows.sums.push_back(found->outer);
    }
    gradients.push_back(found->gradient);
    grad.reset();
    all.push_back(std::move(rows));
  }
  set_rows(all, std::move(gradients));
  if (memory_) {
    of_unit.unit->drop(); // Backward is done with it.
    memory_->keep_one_free();
  }
  auto on_the_way = std::make_shared<Sum>();
  on_the_way->unit = of_unit.unit.get();
  {
    const InsideGuard inside;
    on_the_way->waits = sum_along_shard(all, axis);
  }
  on_the_way->all = std::move(all);
  on_the_way_ = std::move(on_the_way);
  summing_ = false;
  if (!axis.communicator("backward").works_beside()) {
    finish_sum();
  }
}

void UnitGradients::finish_sum() {
  const auto sum = std::exchange(on_the_way_, nullptr);
  if (!sum) {
    return;
  }
  const at::NoGradGuard no_grad;
  summing_ = true;
  {
    const InsideGuard inside;
    for (const auto& wait : sum->waits) {
      wait();
    }
    for (auto axis_of_sum = axes_.rbegin(); axis_of_sum != axes_.rend(); ++axis_of_sum) {
      sum_along(sum->all, **axis_of_sum);
    }
  }
  sum->waits.clear(); // They hold the rows.
  for (auto& one : sum->all) {
    at::Tensor gradient;
    {
      const InsideGuard inside;
      gradient = distributed::in_places_of(
          one.parameter,
          std::exchange(one.rows, at::Tensor()).to(one.parameter.scalar_type()));
    }
    auto& sums = one.parameter.mutable_grad();
    sums = one.before.defined() ? std::move(one.before).add_(gradient)
                                : std::move(gradient);
    gradient.reset();
    if (offload_) {
      offload_->move(sums);
    }
  }
  summing_ = false;
}

} // namespace accel::parallel
