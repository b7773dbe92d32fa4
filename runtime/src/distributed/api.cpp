#include <accel/distributed/tensor.h>

#include "core/operation_log.h"
#include "distributed/collectives.h"
#include "distributed/lineage.h"
#include "distributed/part.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>

namespace accel::distributed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool needs_graph(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

/// The level of forward-mode differentiation; LibTorch has one.
constexpr uint64_t kLevel = 0;

/// `f(tensor)`, with the tangent that the tensor has in forward mode brought to the same
/// place: `f` is linear, and LibTorch's functions of C++ know no forward mode.
template <typename F>
at::Tensor with_tangent(const at::Tensor& tensor, const F& f) {
  const at::Tensor tangent = tensor._fw_grad(kLevel);
  if (C10_LIKELY(!tangent.defined())) {
    return f(tensor);
  }
  return at::_make_dual(f(tensor._fw_primal(kLevel)), f(tangent), kLevel);
}

/// The placement that a dimension of so many rows can have.
Placement fitting(
    const Axis& axis,
    const Placement& asked,
    c10::IntArrayRef sizes) {
  if (!asked.is_shard()) {
    return asked;
  }
  TORCH_CHECK(
      asked.dim() >= 0 && asked.dim() < static_cast<int64_t>(sizes.size()),
      "accel: Shard(", asked.dim(), ") does not fit a tensor of sizes ", sizes,
      "; dimensions are counted from 0.");
  const int64_t n = sizes[asked.dim()];
  if (asked.cut()) {
    const auto& points = asked.cut()->points;
    TORCH_CHECK(
        static_cast<int64_t>(points.size()) == axis.size() + 1 &&
            points.front() == 0 &&
            points.back() * asked.cut()->blocks == n,
        "accel: the cut of ", asked, " does not fit ", n, " rows and ",
        axis.size(), " processes.");
    return asked;
  }
  return n < axis.size() ? Replicate() : asked;
}

at::Tensor place(
    const at::Tensor& tensor,
    const std::vector<Axis*>& axes,
    const std::vector<Placement>& placements,
    size_t k) {
  if (k == axes.size()) {
    return tensor;
  }
  Axis& axis = *axes[k];
  Part* part = part_of(tensor);
  TORCH_CHECK(
      part == nullptr || part->axis->mesh() == axis.mesh(),
      "accel: a tensor of one mesh was to be placed on another. Take "
      "accel::distributed::full_tensor(tensor) first.");
  const bool here = part != nullptr && part->axis == &axis;
  const auto sizes = tensor.sizes();
  const auto from = here ? part->placement : Replicate();
  const auto to = fitting(axis, placements[k], sizes);
  auto local = redistribute_local(
      axis, here ? part->local : tensor, from, to, sizes, "redistribute");
  if (from != to) {
    local = in_order_of(local, tensor);
  }
  auto inner = place(local, axes, placements, k + 1);
  return to.is_replicate()
      ? inner
      : make_tensor(
            axis, std::move(inner), to, sizes, tensor.strides(), /*exact=*/true);
}

at::Tensor whole(const at::Tensor& tensor) {
  const auto result = gather_all(tensor, "full_tensor");
  return result.is_same(tensor) ? result : in_order_of(result, tensor);
}

/// The whole value in the memory that all of the tensor's family have from there on.
at::Tensor shared_whole(const at::Tensor& tensor) {
  at::Tensor whole = tensor;
  while (Part* part = part_of(whole)) {
    keep_cut(part);
    settle(part, "full_tensor_");
    at::Tensor inner = whole_of(part, "full_tensor_");
    whole = std::move(inner);
  }
  return whole.is_same(tensor) ? whole : at::alias(whole);
}

/// Makes the same values lie otherwise.
using Placing = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor laid(const at::Tensor& tensor, const Placing& lay) {
  const InsideGuard inside;
  auto result = lay(tensor);
  if (!result.is_same(tensor)) {
    inherit_lineage(result, lineage_of(tensor));
  }
  return result;
}

/// The gradient is that of the same values wherever it lies.
struct Placed : torch::autograd::Function<Placed> {
  static at::Tensor forward(
      AutogradContext*, const at::Tensor& tensor, const Placing* lay) {
    const InsideGuard inside;
    const auto result = laid(tensor, *lay);
    return result.is_same(tensor) ? at::alias(result) : result;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], {}};
  }
};

at::Tensor placed(const at::Tensor& tensor, const Placing& lay) {
  install();
  return with_tangent(tensor, [&](const at::Tensor& value) {
    if (needs_graph(value)) {
      return Placed::apply(value, &lay);
    }
    return laid(value, lay);
  });
}

struct Level {
  Axis* axis;
  Placement placement;
  Sizes sizes;
};

/// The axes of a tensor from the outside in, with its place along each.
std::vector<Level> levels_of(const at::Tensor& tensor) {
  std::vector<Level> levels;
  at::Tensor inner = tensor;
  while (Part* part = part_of(inner)) {
    levels.push_back({part->axis, part->placement, part->sizes});
    inner = part->local;
  }
  return levels;
}

/// The axes and placements that are asked for, and those of the tensor that the
/// asked mesh does not have, in the mesh's order.
struct Asked {
  std::vector<Axis*> axes;
  std::vector<Placement> placements;
};

Asked with_others_kept(
    const at::Tensor& tensor,
    const std::vector<Axis*>& axes,
    const std::vector<Placement>& placements) {
  Asked asked{axes, placements};
  for (const auto& level : levels_of(tensor)) {
    TORCH_CHECK(
        level.axis->mesh() == axes.front()->mesh(),
        "accel: a tensor of one mesh was to be placed on another. Take "
        "accel::distributed::full_tensor(tensor) first.");
    size_t place = 0;
    while (place < asked.axes.size() &&
           asked.axes[place]->index() < level.axis->index()) {
      ++place;
    }
    if (place == asked.axes.size() || asked.axes[place] != level.axis) {
      // A cut of its own is one of the rows that were there.
      const auto offset = static_cast<std::ptrdiff_t>(place);
      asked.axes.insert(asked.axes.begin() + offset, level.axis);
      asked.placements.insert(
          asked.placements.begin() + offset,
          level.placement.is_shard() ? Shard(level.placement.dim())
                                     : level.placement);
    }
  }
  return asked;
}

/// This process's part, to be given out: who writes to it is seen by its version.
at::Tensor local_alias(const at::Tensor& tensor) {
  auto alias = leaf_of(tensor).detach();
  const Part* root = root_of(part_of(tensor));
  if (root->unit != nullptr) {
    root->unit->given_out(*root);
    if (!alias.is_inference()) {
      alias.unsafeGetTensorImpl()->set_version_counter(
          root->local.unsafeGetTensorImpl()->version_counter());
    }
  }
  return alias;
}

struct ToLocal : torch::autograd::Function<ToLocal> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor) {
    const InsideGuard inside;
    context->save_for_backward({tensor});
    return local_alias(tensor);
  }
  static variable_list backward(
      AutogradContext* context,
      variable_list gradients) {
    const InsideGuard inside;
    const auto levels = levels_of(context->get_saved_variables()[0]);
    at::Tensor gradient = gradients[0];
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      // The gradient of a part of a sum is the gradient of the sum.
      if (level->placement.is_shard()) {
        gradient = make_tensor(
            *level->axis, gradient, level->placement, level->sizes);
      }
    }
    return {gradient};
  }
};

/// The placement and the sizes of what has these parts.
std::pair<Placement, Sizes> joined(
    const at::Tensor& local,
    const Axis& axis,
    const Placement& placement) {
  Sizes sizes(local.sizes().begin(), local.sizes().end());
  if (!placement.is_shard()) {
    return {placement, sizes};
  }
  const int64_t dim = placement.dim();
  TORCH_CHECK(
      dim >= 0 && dim < local.dim(),
      "accel: from_local was asked for ", placement,
      " of parts of sizes ", local.sizes(), ".");
  auto& processes = axis.communicator("from_local");
  // How many rows a process has is its own affair; all else is not.
  auto others = sizes;
  others[dim] = -1;
  const accel::detail::PurposeGuard purpose(
      "from_local", others, static_cast<uint64_t>(local.scalar_type()));
  const auto rows =
      processes.all_gather(at::full({1}, local.size(dim), at::kLong));
  std::vector<int64_t> points{0};
  for (const auto& n : rows) {
    TORCH_CHECK(
        n.item<int64_t>() > 0,
        "accel: from_local was given a part without rows by process ",
        points.size() - 1, "; each process needs at least one.");
    points.push_back(points.back() + n.item<int64_t>());
  }
  sizes[dim] = points.back();
  return {Shard(dim, axis.cut_at(std::move(points))), sizes};
}

struct FromLocal : torch::autograd::Function<FromLocal> {
  static at::Tensor forward(
      AutogradContext* context,
      const at::Tensor& local,
      Axis* axis,
      const Placement* asked) {
    const InsideGuard inside;
    const auto [placement, sizes] = joined(local, *axis, *asked);
    auto result = make_tensor(*axis, local, placement, sizes);
    context->save_for_backward({result.detach()});
    return result;
  }
  static variable_list backward(
      AutogradContext* context,
      variable_list gradients) {
    const InsideGuard inside;
    const auto result = context->get_saved_variables()[0];
    Part* forward = part_of(result);
    Part* part = part_of(gradients[0]);
    const auto to =
        forward->placement.is_shard() ? forward->placement : Replicate();
    return {
        redistribute_local(
            *forward->axis,
            part != nullptr ? part->local : gradients[0],
            part != nullptr ? part->placement : Replicate(),
            to, result.sizes(), "from_local"),
        {},
        {}};
  }
};

} // namespace

bool is_distributed(const at::Tensor& tensor) {
  return tensor.defined() && part_of(tensor) != nullptr;
}

at::Tensor distribute_tensor(
    const at::Tensor& tensor,
    const DeviceMesh& mesh,
    const std::vector<Placement>& placements) {
  TORCH_CHECK(
      static_cast<int64_t>(placements.size()) == mesh.ndim(),
      "accel: ", placements.size(), " placements were given for ", mesh.str(),
      ", which has ", mesh.ndim(), " axes; one for each is needed.");
  TORCH_CHECK(
      tensor.layout() == at::kStrided,
      "accel: only dense tensors can be distributed, this one's layout is ",
      tensor.layout(), ". Use tensor.to_dense() first.");
  const auto asked = with_others_kept(tensor, mesh.axes(), placements);
  return placed(tensor, [&](const at::Tensor& value) {
    return place(value, asked.axes, asked.placements, 0);
  });
}

at::Tensor distribute_like(
    const at::Tensor& tensor,
    const at::Tensor& like,
    std::optional<int64_t> dim) {
  TORCH_CHECK(
      !dim || (*dim >= -tensor.dim() && *dim < tensor.dim()), "accel: ", *dim,
      " is no dimension of a tensor of sizes ", tensor.sizes(),
      ", which was to be distributed like another one along it.");
  const auto own = levels_of(tensor);
  const bool lies_in_parts = std::any_of(own.begin(), own.end(), [](const auto& level) {
    return !level.placement.is_replicate();
  });
  if (lies_in_parts || tensor.layout() != at::kStrided) {
    return tensor;
  }
  std::vector<Axis*> axes;
  std::vector<Placement> placements;
  for (const auto& level : levels_of(like)) {
    if (!level.placement.is_shard()) {
      continue;
    }
    const int64_t of_like = level.placement.dim();
    const int64_t to = dim ? (*dim + tensor.dim()) % tensor.dim() : of_like;
    if (to < tensor.dim() && tensor.size(to) == like.size(of_like)) {
      axes.push_back(level.axis);
      placements.push_back(level.placement.with_dim(to));
    }
  }
  return axes.empty() ? tensor : placed(tensor, [&](const at::Tensor& value) {
    return place(value, axes, placements, 0);
  });
}

at::Tensor redistribute(
    const at::Tensor& tensor,
    const DeviceMesh& mesh,
    const std::vector<Placement>& placements) {
  return distribute_tensor(tensor, mesh, placements);
}

at::Tensor redistribute(
    const at::Tensor& tensor,
    const std::vector<Placement>& placements) {
  return distribute_tensor(tensor, mesh(tensor), placements);
}

at::Tensor full_tensor(const at::Tensor& tensor) {
  return distributed::is_distributed(tensor) ? placed(tensor, whole) : tensor;
}

at::Tensor full_tensor_(const at::Tensor& tensor) {
  return distributed::is_distributed(tensor) ? placed(tensor, shared_whole) : tensor;
}

at::Tensor to_local(const at::Tensor& tensor) {
  if (!distributed::is_distributed(tensor)) {
    return tensor;
  }
  return with_tangent(tensor, [](const at::Tensor& value) {
    if (needs_graph(value)) {
      return ToLocal::apply(value);
    }
    const InsideGuard inside;
    return local_alias(value);
  });
}

at::Tensor from_local(
    const at::Tensor& local,
    const DeviceMesh& mesh,
    const Placement& placement) {
  TORCH_CHECK(
      mesh.ndim() == 1,
      "accel: from_local joins parts along one axis, ", mesh.str(), " has ",
      mesh.ndim(), ". Name one: mesh[\"name\"].");
  install();
  Axis& axis = *mesh.axes()[0];
  return with_tangent(local, [&](const at::Tensor& value) {
    if (needs_graph(value)) {
      return FromLocal::apply(value, &axis, &placement);
    }
    const InsideGuard inside;
    const auto [joined_placement, sizes] = joined(value, axis, placement);
    return make_tensor(axis, value.detach(), joined_placement, sizes);
  });
}

std::vector<Placement> placements(const at::Tensor& tensor) {
  TORCH_CHECK(
      distributed::is_distributed(tensor),
      "accel: placements was asked of a tensor that is not distributed.");
  std::vector<Placement> all;
  for (const auto& level : levels_of(tensor)) {
    all.push_back(level.placement);
  }
  return all;
}

DeviceMesh mesh(const at::Tensor& tensor) {
  TORCH_CHECK(
      distributed::is_distributed(tensor),
      "accel: mesh was asked of a tensor that is not distributed.");
  std::vector<Axis*> axes;
  for (const auto& level : levels_of(tensor)) {
    axes.push_back(level.axis);
  }
  return DeviceMesh(std::move(axes));
}

} // namespace accel::distributed
