#include "distributed/rules/packed.h"

#include "distributed/collectives.h"
#include "distributed/part.h"
#include "distributed/watch.h"

#include <accel/distributed/device_mesh.h>
#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>
#include <vector>

namespace accel::distributed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Where a whole tensor lies.
struct Whole : torch::CustomClassHolder {
  Whole(Axis* axis, Placement placement, at::IntArrayRef sizes)
      : axis(axis), placement(std::move(placement)), sizes(sizes.vec()) {}
  Axis* axis;
  Placement placement;
  std::vector<int64_t> sizes;
};
using WholePtr = c10::intrusive_ptr<Whole>;

WholePtr kept(const AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Whole>(
      context->saved_data.at("whole").toCapsule());
}

at::Tensor from_part(const at::Tensor& local, const WholePtr& whole);
at::Tensor to_part(const at::Tensor& tensor, const WholePtr& gradient);

/// What autograd sees of `from_part` and of `to_part`: each is the other's gradient.
struct FromPart : torch::autograd::Function<FromPart> {
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& local, const WholePtr& whole) {
    const InsideGuard inside;
    context->saved_data["whole"] = c10::IValue::make_capsule(whole);
    return make_tensor(*whole->axis, local, whole->placement, whole->sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!gradients[0].defined()) {
      return {{}, {}};
    }
    const auto whole = kept(context);
    // The gradient of a part of a sum is that of the sum.
    return {
        whole->placement.is_shard()
            ? to_part(
                  distribute_tensor(
                      gradients[0], DeviceMesh({whole->axis}), {whole->placement}),
                  whole)
            : full_tensor(gradients[0]),
        {}};
  }
};

struct ToPart : torch::autograd::Function<ToPart> {
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& tensor, const WholePtr& gradient) {
    const InsideGuard inside;
    context->saved_data["whole"] = c10::IValue::make_capsule(gradient);
    const Part* part = part_of(tensor);
    return (part != nullptr ? part->local : tensor).alias();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!gradients[0].defined()) {
      return {{}, {}};
    }
    return {from_part(gradients[0], kept(context)), {}};
  }
};

/// This process's `local` as a tensor of all.
at::Tensor from_part(const at::Tensor& local, const WholePtr& whole) {
  return FromPart::apply(local, whole);
}

/// What this process has of `tensor`; the gradients that the processes find are
/// `gradient`'s: parts of a sum, where it is plain.
at::Tensor to_part(const at::Tensor& tensor, const WholePtr& gradient) {
  return ToPart::apply(tensor, gradient);
}

/// Entries of a dimension in the order in which they are dealt out: first those of
/// process 0, then those of process 1.
struct Order {
  std::vector<int64_t> entries;
  std::vector<int64_t> points{0};

  void end_process() {
    points.push_back(static_cast<int64_t>(entries.size()));
  }
  Cut cut(const Axis& axis) const {
    return axis.cut_at(points);
  }
  int64_t size() const {
    return points.back();
  }
  /// Those of this process, as a part of all.
  at::Tensor parts(Axis& axis, const at::Device& device) const {
    const auto all = at::tensor(entries, at::kLong);
    const int64_t begin = points[axis.rank()];
    return make_tensor(
        axis, all.slice(0, begin, points[axis.rank() + 1]).to(device).clone(),
        Shard(0, cut(axis)), {size()});
  }
  /// Where each entry stands in it.
  at::Tensor back(const at::Device& device) const {
    std::vector<int64_t> places(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      places[entries[i]] = static_cast<int64_t>(i);
    }
    return at::tensor(places, at::kLong).to(device);
  }
};

/// Packed sequences dealt to the processes in turn, so that each has long and short
/// ones: the longest comes first.
struct Dealt {
  Dealt(const at::Tensor& batch_sizes, const Axis& axis) {
    const int64_t* const at = batch_sizes.const_data_ptr<int64_t>();
    const std::vector<int64_t> sizes(at, at + batch_sizes.numel());
    for (int64_t process = 0; process < axis.size(); ++process) {
      for (int64_t column = process; column < sizes[0]; column += axis.size()) {
        columns.entries.push_back(column);
      }
      columns.end_process();
      int64_t first = 0;
      for (const int64_t size : sizes) {
        int64_t own = 0;
        for (int64_t column = process; column < size; column += axis.size()) {
          rows.entries.push_back(first + column);
          ++own;
        }
        if (own > 0 && process == axis.rank()) {
          own_sizes.push_back(own);
        }
        first += size;
      }
      rows.end_process();
    }
  }
  /// Of the packed data, and of the states.
  Order rows, columns;
  /// The batch sizes of this process's sequences.
  std::vector<int64_t> own_sizes;
};

/// Its own entries of `tensor` along `dim`.
at::Tensor dealt_out(
    const at::Tensor& tensor, int64_t dim, const Order& order, Axis& axis) {
  const auto parts =
      tensor.index_select(dim, order.parts(axis, tensor.device()));
  return to_part(
      parts,
      c10::make_intrusive<Whole>(&axis, Shard(dim, order.cut(axis)), parts.sizes()));
}

/// The whole of which this process has `local`.
at::Tensor collected(
    const at::Tensor& local, int64_t dim, const Order& order, Axis& axis) {
  auto sizes = local.sizes().vec();
  sizes[dim] = order.size();
  const auto parts = from_part(
      local, c10::make_intrusive<Whole>(&axis, Shard(dim, order.cut(axis)), sizes));
  return full_tensor(parts).index_select(dim, order.back(local.device()));
}

/// Whole; those that need a gradient give each process a part of its sum.
std::vector<at::Tensor> with_summed_gradients(
    std::vector<at::Tensor> weights, Axis& axis) {
  for (auto& weight : weights) {
    weight = full_tensor(weight);
    if (weight.defined() && weight.requires_grad()) {
      weight = to_part(
          weight, c10::make_intrusive<Whole>(&axis, Partial(), weight.sizes()));
    }
  }
  return weights;
}

/// Whether random numbers are drawn between the layers.
bool draws(const torch::jit::Stack& stack, size_t base) {
  return stack[base + 5].toInt() > 1 && stack[base + 6].toDouble() != 0 &&
      stack[base + 7].toBool();
}

} // namespace

bool run_packed_in_parts(
    const c10::OperatorHandle& op, torch::jit::Stack* stack, Axis& axis) {
  const size_t base = stack->size() - op.schema().arguments().size();
  const auto batch_sizes = full_tensor((*stack)[base + 1].toTensor());
  // Random placements and what notes operators look at each as if it were whole.
  if (draws(*stack, base) || watch().place != nullptr ||
      PlainOperators::are_followed() || batch_sizes.numel() == 0 ||
      batch_sizes[0].item<int64_t>() < axis.size()) {
    return false;
  }
  const Dealt dealt(batch_sizes.contiguous(), axis);
  const at::Tensor data = full_tensor((*stack)[base].toTensor()).alias();
  if (data.requires_grad()) {
    // The gradient of packing goes through the steps.
    data.register_hook(
        [](const at::Tensor& gradient) { return full_tensor(gradient); });
  }
  (*stack)[base] = dealt_out(data, 0, dealt.rows, axis);
  (*stack)[base + 1] = at::tensor(dealt.own_sizes, at::kLong);
  auto& states = (*stack)[base + 2];
  if (states.isTensor()) {
    states = dealt_out(states.toTensor(), 1, dealt.columns, axis);
  } else {
    auto list = states.toTensorVector();
    for (auto& state : list) {
      state = dealt_out(state, 1, dealt.columns, axis);
    }
    states = std::move(list);
  }
  (*stack)[base + 3] =
      with_summed_gradients((*stack)[base + 3].toTensorVector(), axis);
  {
    const PartScope part;
    op.callBoxedForDispatchKey(
        c10::DispatchKey::CompositeImplicitAutograd, *stack);
  }
  const size_t results = op.schema().returns().size();
  for (size_t i = 0; i < results; ++i) {
    auto& result = (*stack)[stack->size() - results + i];
    result = i == 0 ? collected(result.toTensor(), 0, dealt.rows, axis)
                    : collected(result.toTensor(), 1, dealt.columns, axis);
  }
  return true;
}

} // namespace accel::distributed
