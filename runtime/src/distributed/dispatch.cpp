#include "core/read_values.h"
#include "distributed/call.h"
#include "distributed/draws.h"
#include "distributed/each_tensor.h"
#include "distributed/kernels.h"
#include "distributed/lineage.h"
#include "distributed/replacing.h"
#include "distributed/recompute.h"
#include "distributed/rules/composites.h"
#include "distributed/rules/table.h"
#include "distributed/sequence.h"
#include "distributed/thread_table.h"
#include "distributed/view_geometry.h"
#include "distributed/watch.h"

#include <ATen/ATen.h>
#include <ATen/core/op_registration/op_registration.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/library.h>

namespace accel::distributed {
namespace {

/// What the tensors of a call have in common.
struct Seen {
  /// The one of lowest index.
  Axis* axis = nullptr;
  /// None has another layout (sparse, nested).
  bool strided = true;
  /// One is cut in blocks.
  bool blocks = false;
  /// One has become whole on every process, as others saw what was written to it.
  bool settled = false;
};

void look_at(
    const c10::OperatorHandle& op,
    const at::Tensor& tensor,
    Seen& seen) {
  auto& axis = seen.axis;
  if (!tensor.defined()) {
    return;
  }
  const Part* part = part_of(tensor);
  if (part == nullptr) {
    seen.strided = seen.strided && tensor.layout() == at::kStrided;
    return;
  }
  seen.blocks = seen.blocks || part->placement.in_blocks();
  seen.settled = seen.settled || part->settled;
  if (axis == nullptr) {
    axis = part->axis;
    return;
  }
  if (part->axis != axis) {
    TORCH_CHECK(
        part->axis->mesh() == axis->mesh(),
        "accel: ",
        op.schema().name(),
        " was given tensors of two meshes (",
        part->placement, " of sizes ", part->sizes, " is of another one). Bring "
        "them to one first: accel::distributed::full_tensor(tensor), then "
        "distribute_tensor(tensor, mesh, placements).");
    if (part->axis->index() < axis->index()) {
      axis = part->axis;
    }
  }
}

/// What has to be known of a view's argument before the rule replaces it.
struct PendingView {
  at::Tensor base;
  /// Null where the result is no view of a part.
  c10::intrusive_ptr<ViewOf> view;

  /// How result `output` is made.
  c10::intrusive_ptr<ViewOf> of_output(size_t output) const {
    if (output == view->output) {
      return view;
    }
    auto other = c10::make_intrusive<ViewOf>(view->parent, view->op);
    other->arguments = view->arguments;
    other->output = output;
    return other;
  }
};

PendingView pending_view(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  PendingView pending;
  const size_t base = stack.size() - info.arguments;
  if (info.is_view && stack[base].isTensor()) {
    pending.base = stack[base].toTensor();
    if (Part* part = part_of(pending.base)) {
      pending.view =
          c10::make_intrusive<ViewOf>(PartPtr::reclaim_copy(part), op);
      pending.view->arguments.append(stack.begin() + base + 1, stack.end());
    }
  }
  return pending;
}

/// The plain results of an operator on whole tensors that are views of argument
/// 0 become tensors that know it.
void link_whole_views(
    Axis& axis,
    const PendingView& pending,
    c10::IValue& result) {
  const auto linked = [&](const at::Tensor& whole, size_t output) {
    auto tensor = make_view(
        axis, whole, Replicate(), whole.sizes(), whole.strides(),
        whole.storage_offset(), pending.of_output(output));
    part_of(tensor)->whole = whole;
    return tensor;
  };
  if (result.isTensor()) {
    result = linked(result.toTensor(), 0);
  } else if (result.isTensorList()) {
    auto list = result.toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) {
      list[i] = linked(list[i], i);
    }
    result = std::move(list);
  }
}

/// Tensors that a rule has made of views of parts: they know their parent, and
/// have the strides of the plain view.
void link_local_views(
    const PendingView& pending,
    c10::IValue& result) {
  const auto linked = [&](const at::Tensor& tensor, size_t output) {
    Part* part = part_of(tensor);
    if (part == nullptr || part == pending.view->parent.get()) {
      return;
    }
    part->view = pending.of_output(output);
    part->settled = root_of(part)->settled;
    set_view_geometry(tensor, pending.base, *part->view);
  };
  if (result.isTensor()) {
    linked(result.toTensor(), 0);
  } else if (result.isTensorList()) {
    const auto list = result.toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) {
      linked(list[i], i);
    }
  }
}

Seen look_at_all(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  Seen seen;
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    each_tensor(stack[base + i], [&](const at::Tensor& tensor) {
      look_at(op, tensor, seen);
    });
  }
  return seen;
}

/// Replaces every tensor of an argument by what `f` makes of it.
template <typename F>
void replace_tensors(c10::IValue& value, const F& f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (auto& tensor : list) {
      tensor = f(tensor);
    }
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor :
         value.toOptionalTensorList().vec()) {
      list.push_back(tensor ? std::optional<at::Tensor>(f(*tensor)) : tensor);
    }
    value = std::move(list);
  }
}

/// For a rule that knows no blocks: what is cut in blocks is cut in ranges.
/// Collective. False where that would be another tensor than the one that is
/// viewed or written.
bool use_ranges(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack,
    Axis& axis) {
  if (info.is_view || !info.writes.empty()) {
    return false;
  }
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    replace_tensors(stack[base + i], [&](const at::Tensor& tensor) {
      const Part* part = tensor.defined() ? part_of(tensor) : nullptr;
      if (part == nullptr || part->axis != &axis ||
          !part->placement.in_blocks()) {
        return tensor;
      }
      const auto to = Shard(part->placement.dim());
      auto local = redistribute_local(
          axis, part->local, part->placement, to, part->sizes,
          op.schema().name().c_str());
      return make_tensor(
          axis, in_order_of(local, tensor), to, part->sizes, tensor.strides(),
          /*exact=*/true);
    });
  }
  return true;
}

/// For a rule that knows no better of sums in parts: along the axis of sequence
/// parallelism they become positions of the sum. Collective. False where there is
/// none such, or something is viewed or written.
bool use_positions(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack,
    Axis& axis) {
  const auto& sequence = SequenceParallel::get();
  if (!sequence.is_on(axis) || info.is_view || !info.writes.empty()) {
    return false;
  }
  bool any = false;
  const size_t base = stack.size() - info.arguments;
  for (const auto i : info.tensors) {
    replace_tensors(stack[base + i], [&](const at::Tensor& tensor) {
      const Part* part = tensor.defined() ? part_of(tensor) : nullptr;
      if (part == nullptr || part->axis != &axis || !part->placement.is_sum()) {
        return tensor;
      }
      const auto to = sequence.place(part->sizes);
      if (!to) {
        return tensor;
      }
      any = true;
      auto local = redistribute_local(
          axis, part->local, part->placement, *to, part->sizes,
          op.schema().name().c_str());
      return make_tensor(
          axis, in_order_of(local, tensor), *to, part->sizes, tensor.strides(),
          /*exact=*/true);
    });
  }
  return any;
}

/// The operator on whole tensors: right for every operator. Collective where an
/// argument is not replicated.
void run_whole(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack& stack,
    Axis& axis,
    const PendingView& pending) {
  const size_t base = stack.size() - info.arguments;
  const auto part = [&](const at::Tensor& tensor) -> Part* {
    Part* p = tensor.defined() ? part_of(tensor) : nullptr;
    return p != nullptr && p->axis == &axis ? p : nullptr;
  };
  // What is written must be written where it is read later.
  std::vector<at::Tensor> written;
  std::vector<Sizes> written_strides;
  for (const auto i : info.writes) {
    each_tensor(stack[base + i], [&](const at::Tensor& tensor) {
      if (Part* p = part(tensor)) {
        settle(p);
        written.push_back(tensor);
        const auto strides = p->local.strides();
        written_strides.emplace_back(strides.begin(), strides.end());
      }
    });
  }
  // In the order of memory that the whole tensor has: results follow it, random
  // numbers are drawn in it.
  const auto whole = [&](const at::Tensor& tensor) {
    Part* p = part(tensor);
    if (p == nullptr) {
      return tensor;
    }
    if (p->placement.is_replicate()) {
      return p->local; // itself: it may be what is written
    }
    if (is_worth_settling(*p)) {
      settle(p, op.schema().name().c_str());
      return p->local;
    }
    const auto gathered = gather(
        axis, p->local, p->placement, p->sizes, op.schema().name().c_str());
    return whole_as(gathered, tensor);
  };
  const bool is_view =
      pending.view && pending.view->parent->axis == &axis;
  if (is_view) {
    stack[base] = whole_of(pending.view->parent.get());
  }
  const at::Tensor self = info.is_in_place && stack[base].isTensor()
      ? stack[base].toTensor()
      : at::Tensor();
  for (const auto i : info.tensors) {
    replace_tensors(stack[base + i], whole);
  }
  op.callBoxed(stack);
  // In-place operators may change the shape, or the order of equal dimensions only
  // (t_ of a square).
  for (size_t i = 0; i < written.size(); ++i) {
    const auto& tensor = written[i];
    Part* p = part_of(tensor);
    if (p->local.sizes() != tensor.sizes() ||
        p->local.strides() != c10::IntArrayRef(written_strides[i])) {
      p->sizes.assign(p->local.sizes().begin(), p->local.sizes().end());
      p->strides.assign(p->local.strides().begin(), p->local.strides().end());
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
          p->local.sizes(), p->local.strides());
    }
  }
  // Results that are what was written are the tensors that were passed.
  if (self.defined() && part(self) != nullptr && stack.back().isTensor()) {
    stack.back() = self;
  } else if (!written.empty()) {
    for (size_t k = stack.size() - info.results; k < stack.size(); ++k) {
      if (!stack[k].isTensor()) {
        continue;
      }
      for (const auto& tensor : written) {
        if (stack[k].toTensor().is_same(part_of(tensor)->local)) {
          stack[k] = tensor;
          break;
        }
      }
    }
  }
  if (is_view) {
    link_whole_views(axis, pending, stack[stack.size() - info.results]);
  }
}

/// Operators that return a number and are running in this thread. What one of them
/// asks of parts along a further axis (whether these are equal) is no value that the
/// program reads, and need not be the same on all processes.
thread_local int reading = 0;

struct Reading {
  explicit Reading(bool reads) : reads(reads) {
    reading += reads ? 1 : 0;
  }
  ~Reading() {
    reading -= reads ? 1 : 0;
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  const bool reads;
};

void fallback(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  handle(op, stack, keys);
}

} // namespace

Axis* axis_of(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  return look_at_all(op, info, stack).axis;
}

const OperatorInfo& info_of(const c10::OperatorHandle& op) {
  auto& known = thread_table<
      ska::flat_hash_map<const void*, std::unique_ptr<OperatorInfo>>>();
  auto& info = known[&op.schema()];
  if (info == nullptr) {
    info = std::make_unique<OperatorInfo>(describe(op));
  }
  return *info;
}

namespace {

/// A tensor whose values are in memory that the program had before lies as they do,
/// which may be with gaps (columns of a data set).
void take_borrowed_strides(const at::Tensor& tensor, Part& part) {
  if (C10_LIKELY(!part.borrows) || !part.settled ||
      part.local.strides() == tensor.strides()) {
    return;
  }
  part.strides.assign(part.local.strides().begin(), part.local.strides().end());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      part.local.sizes(), part.local.strides());
}

/// Makes a tensor of its own out of tensors that it leaves as they are.
bool only_reads(const OperatorInfo& info) {
  return info.rule != nullptr && info.writes.empty() && !info.is_view &&
      !info.reads_value;
}

void carry_out(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    torch::jit::Stack* stack,
    c10::DispatchKeySet keys) {
  const InsideGuard inside;
  const Seen seen = look_at_all(op, info, *stack);
  Axis* const axis = seen.axis;
  if (C10_UNLIKELY(axis == nullptr)) {
    if (C10_UNLIKELY(watch().any)) {
      run_plain(op, info, *stack);
    } else {
      op.callBoxed(stack);
    }
    return;
  }
  axis->check_thread(op.schema().name().c_str());
  if (C10_UNLIKELY(info.is_composite)) {
    op.callBoxedForDispatchKey(
        c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  const size_t base = stack->size() - info.arguments;
  for (const auto i : info.writes) {
    each_tensor((*stack)[base + i], [&](const at::Tensor& tensor) {
      if (Part* part = tensor.defined() ? part_of(tensor) : nullptr) {
        before_write(part);
        take_borrowed_strides(tensor, *part);
      }
    });
  }
  if (C10_UNLIKELY(seen.settled) && only_reads(info)) {
    for (const auto i : info.tensors) {
      replace_tensors((*stack)[base + i], [&](const at::Tensor& tensor) {
        return cut_again(tensor, *axis);
      });
    }
  }
  const auto pending = pending_view(op, info, *stack);
  const Reading reads(info.reads_value);
  at::Tensor read;
  if (C10_UNLIKELY(info.reads_value)) {
    read = (*stack)[base + info.tensors.front()].toTensor();
  }
  std::optional<NotedDraw> draw;
  if (C10_UNLIKELY(info.draws)) {
    draw.emplace(info, *stack);
  }
  std::optional<Watched> watched;
  if (C10_UNLIKELY(watch().any)) {
    watched.emplace(op, info, *stack, *axis);
  }
  // Rules cut dimensions of strided tensors.
  const bool has_rule = info.rule != nullptr &&
      (seen.strided || info.takes_sparse) &&
      (!seen.blocks || info.takes_blocks ||
       use_ranges(op, info, *stack, *axis));
  Call call(op, info, *stack, *axis, keys);
  const auto by_rule = [&] {
    if (info.rule(call)) {
      return true;
    }
    return C10_UNLIKELY(use_positions(op, info, *stack, *axis)) &&
        info.rule(call);
  };
  if (has_rule && by_rule()) {
    call.leave_units();
    if (pending.view) {
      link_local_views(pending, (*stack)[stack->size() - info.results]);
    }
    if (C10_UNLIKELY(watched.has_value())) {
      watched->done(*stack, /*by_rule=*/true);
    }
  } else {
    run_whole(op, info, *stack, *axis, pending);
    if (C10_UNLIKELY(watched.has_value())) {
      watched->done(*stack, /*by_rule=*/false);
    }
  }
  if (C10_UNLIKELY(draw.has_value())) {
    draw->done();
  }
  if (C10_UNLIKELY(info.reads_value && reading == 1)) {
    accel::detail::ReadValues::get().add_read(
        op.schema().name().c_str(), stack->back(), read.device(),
        read.scalar_type());
  }
}

} // namespace

void handle(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    c10::DispatchKeySet keys) {
  // Once for each operator: no call for it.
  static const Watch& watched = watch();
  const auto& info = info_of(op);
  std::optional<NotedCall> call;
  if (keeps_lineages && !noting_lineage && !info.is_composite) {
    call.emplace(op, info, *stack);
  }
  const auto end = [&] {
    if (call) {
      call->done(*stack);
    }
  };
  if (C10_UNLIKELY(watched.any)) {
    if (auto* const recompute = Recompute::listening()) {
      Recompute::Noted noted(*recompute, op, info, *stack);
      carry_out(op, info, stack, keys);
      noted.done(*stack);
      end();
      return;
    }
  }
  carry_out(op, info, stack, keys);
  end();
}

void install() {
  static torch::Library* const library = [] {
    auto* made = new torch::Library(
        torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    static auto* const kernels = new torch::Library(
        torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    install_kernels(*kernels);
    install_replacing(*kernels);
    install_composites();
    // TorchScript's kernels for GPUs, made of several operators, read the memory of
    // tensors themselves.
    torch::jit::setTensorExprFuserEnabled(false);
    return made;
  }();
  (void)library;
  if (C10_UNLIKELY(watch().any)) {
    begin_watching();
  }
}

} // namespace accel::distributed
