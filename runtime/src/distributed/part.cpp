#include "distributed/part.h"

#include "distributed/collectives.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

namespace accel::distributed {
namespace {

const char* const kRawMemory =
    "accel: the memory of a distributed tensor was asked for (data_ptr, "
    "accessor, storage, printing or saving the tensor itself), but this "
    "process holds only its part. Take the whole tensor first, on all "
    "processes: accelerator.full(tensor), or "
    "accel::distributed::full_tensor(tensor).";

/// A storage without memory that says what to do instead, one for each device.
const c10::Storage& no_storage(c10::Device device) {
  thread_local std::vector<c10::Storage> storages;
  if (!storages.empty() && storages.front().device() == device) {
    return storages.front();
  }
  for (const auto& storage : storages) {
    if (storage.device() == device) {
      return storage;
    }
  }
  auto impl = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      0,
      c10::DataPtr(nullptr, device),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  impl->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::string(kRawMemory));
  storages.emplace_back(std::move(impl));
  return storages.back();
}

/// A TensorImpl as any other, made quickly: every operator makes one.
class Impl final : public c10::TensorImpl, public Pooled<Impl> {
 public:
  using TensorImpl::TensorImpl;
  using Pooled<Impl>::operator new;
  using Pooled<Impl>::operator delete;

  /// `set_sizes_contiguous`, which finds out again that the tensor is
  /// contiguous.
  void become_contiguous(c10::IntArrayRef sizes) {
    if (sizes.size() > 3) {
      set_sizes_contiguous(sizes); // channels-last is looked for
      return;
    }
    sizes_and_strides_.set_sizes(sizes);
    int64_t step = 1;
    bool empty = false;
    for (size_t d = sizes.size(); d-- > 0;) {
      sizes_and_strides_.stride_at_unchecked(d) = step;
      step *= std::max<int64_t>(sizes[d], 1);
      empty = empty || sizes[d] == 0;
    }
    numel_ = empty ? 0 : step;
    is_contiguous_ = true;
    is_non_overlapping_and_dense_ = true;
  }
};

at::Tensor new_tensor(PartPtr part, const at::Tensor& local) {
  static const auto backend =
      c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask) |
      c10::DispatchKeySet(c10::DispatchKey::Dense);
  auto tensor = at::detail::make_tensor<Impl>(
      c10::Storage(no_storage(local.device())),
      (local.key_set() & backend) | c10::DispatchKeySet(kKey),
      local.dtype());
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(part));
  return tensor;
}

/// Strides of a dense tensor whose memory is ordered as `order` says, the
/// innermost dimension last.
void dense_strides(
    c10::IntArrayRef sizes,
    c10::IntArrayRef order,
    Sizes& strides) {
  strides.resize(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(sizes[order[i]], 1);
  }
}

/// The dimensions, the outermost in memory first. Strides do not tell where a
/// dimension of one row lies: it goes in front of those behind it.
Sizes order_of(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dims = static_cast<int64_t>(sizes.size());
  Sizes order;
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] != 1) {
      order.push_back(d);
    }
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[a] != strides[b] ? strides[a] > strides[b] : a < b;
  });
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] == 1) {
      const auto* behind = std::find_if(
          order.begin(), order.end(), [&](int64_t o) { return o > d; });
      order.insert(order.begin() + (behind - order.begin()), d);
    }
  }
  return order;
}

/// Strides of a tensor that is repeated, which say nothing about an order.
bool is_repeated(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] == 0) {
      return true;
    }
  }
  return false;
}

/// The strides of a copy of a tensor that is repeated or has gaps, as LibTorch
/// makes them: dense, in the order that its strides say.
Sizes strides_of_copy(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto dense = at::infer_dense_strides(sizes, strides);
  return {dense.begin(), dense.end()};
}

/// A copy whose memory is ordered as `order` says. Through views, which tensors
/// that are distributed along further axes have, too.
at::Tensor copy_in_order(const at::Tensor& local, c10::IntArrayRef order) {
  if (std::is_sorted(order.begin(), order.end())) {
    return local.clone(at::MemoryFormat::Contiguous);
  }
  Sizes back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[order[i]] = static_cast<int64_t>(i);
  }
  return local.permute(order)
      .clone(at::MemoryFormat::Contiguous)
      .permute(back);
}

bool is_dense_as(const at::Tensor& local, c10::IntArrayRef order) {
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t n = local.size(order[i]);
    if (n != 1 && local.stride(order[i]) != step) {
      return false;
    }
    step *= std::max<int64_t>(n, 1);
  }
  return true;
}

} // namespace

bool has_single_rows(
    const Axis& axis,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  if (!placement.is_shard() || sizes[placement.dim()] < 2) {
    return false;
  }
  const int64_t n = sizes[placement.dim()];
  if (!placement.cut()) {
    return n < 2 * axis.size();
  }
  const auto& points = placement.cut()->points;
  for (size_t rank = 1; rank < points.size(); ++rank) {
    if (points[rank] - points[rank - 1] < 2) {
      return true;
    }
  }
  return false;
}

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (like.is_contiguous()) {
    return tensor;
  }
  const auto order = like.is_non_overlapping_and_dense()
      ? order_of(like.sizes(), like.strides())
      : order_of(like.sizes(), strides_of_copy(like.sizes(), like.strides()));
  return is_dense_as(tensor, order) ? tensor : copy_in_order(tensor, order);
}

at::Tensor make_tensor(
    Axis& axis,
    at::Tensor local,
    Placement placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef like,
    bool exact) {
  Sizes of_copy;
  if (like.size() == sizes.size() && is_repeated(sizes, like)) {
    of_copy = strides_of_copy(sizes, like);
    like = of_copy;
  }
  const bool single = has_single_rows(axis, placement, sizes);
  if (single && part_of(local) != nullptr) {
    // Along further axes it must be the same on all processes whether a tensor
    // is a view, which its strides here would decide.
    const bool known = like.size() == sizes.size();
    local = known ? copy_in_order(local, order_of(sizes, like))
                  : local.clone(at::MemoryFormat::Contiguous);
  }
  const bool dense = local.is_non_overlapping_and_dense();
  // Parts with gaps (of a transposed tensor) are copied: in whatever order.
  const bool by_like =
      (exact || single || !dense) && like.size() == sizes.size();
  const bool natural =
      !by_like && (single || !dense || local.is_contiguous());
  if (natural) {
    if (!local.is_contiguous()) {
      local = local.clone(at::MemoryFormat::Contiguous);
    }
    return make_contiguous(axis, std::move(local), std::move(placement), sizes);
  }
  const auto order = order_of(
      by_like ? sizes : local.sizes(), by_like ? like : local.strides());
  if (!is_dense_as(local, order)) {
    local = copy_in_order(local, order);
  }
  auto part =
      c10::make_intrusive<Part>(axis, local, std::move(placement), sizes);
  dense_strides(sizes, order, part->strides);
  auto tensor = new_tensor(part, local);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, part->strides);
  return tensor;
}

at::Tensor make_contiguous(
    Axis& axis,
    at::Tensor local,
    Placement placement,
    c10::IntArrayRef sizes) {
  auto part =
      c10::make_intrusive<Part>(axis, local, std::move(placement), sizes);
  auto* made = part.get();
  auto tensor = new_tensor(std::move(part), local);
  auto* impl = static_cast<Impl*>(tensor.unsafeGetTensorImpl());
  impl->become_contiguous(sizes);
  const auto strides = impl->strides();
  made->strides.assign(strides.begin(), strides.end());
  return tensor;
}

at::Tensor make_local_view(
    Axis& axis,
    const at::Tensor& local,
    Placement placement,
    c10::IntArrayRef sizes) {
  auto tensor = new_tensor(
      c10::make_intrusive<Part>(axis, local, std::move(placement), sizes),
      local);
  static_cast<Impl*>(tensor.unsafeGetTensorImpl())->become_contiguous(sizes);
  return tensor;
}

at::Tensor make_view(
    Axis& axis,
    at::Tensor local,
    Placement placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    int64_t offset,
    c10::intrusive_ptr<ViewOf> view) {
  auto part = c10::make_intrusive<Part>(axis, local, std::move(placement), sizes);
  part->settled = root_of(view->parent.get())->settled;
  part->view = std::move(view);
  auto tensor = new_tensor(std::move(part), local);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor share_part(const at::Tensor& tensor) {
  Part* part = part_of(tensor);
  auto copy = new_tensor(PartPtr::reclaim_copy(part), part->local);
  auto* impl = static_cast<Impl*>(copy.unsafeGetTensorImpl());
  if (tensor.is_contiguous() && tensor.storage_offset() == 0) {
    impl->become_contiguous(tensor.sizes());
  } else {
    impl->set_sizes_and_strides(
        tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return copy;
}

at::Tensor ViewOf::of(const at::Tensor& tensor) const {
  torch::jit::Stack stack{tensor};
  if (integers) {
    stack.emplace_back(c10::IntArrayRef(*integers));
  } else {
    stack.insert(stack.end(), arguments.begin(), arguments.end());
  }
  op.callBoxed(stack);
  return stack.back().isTensor() ? stack.back().toTensor()
                                 : stack.back().toTensorVector()[output];
}

void replace_part(const at::Tensor& tensor, PartPtr part) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(part->sizes, part->strides);
  impl->set_backend_meta(std::move(part));
}

at::Tensor with_strides(const at::Tensor& whole, c10::IntArrayRef strides) {
  if (whole.strides() == strides) {
    return whole;
  }
  auto own = at::empty_strided(whole.sizes(), strides, whole.options());
  own.copy_(whole);
  return own;
}

const at::Tensor& whole_of(Part* part) {
  if (part->view == nullptr) {
    if (!part->whole.defined()) {
      const auto whole = gather(
          *part->axis, part->local, part->placement, part->sizes, "a view");
      // Views of it have the strides that views of a whole tensor would have.
      part->whole = with_strides(whole, part->strides);
    }
    return part->whole;
  }
  if (!part->whole.defined()) {
    part->whole = part->view->of(whole_of(part->view->parent.get()));
  }
  return part->whole;
}

void follow(Part* part) {
  const InsideGuard inside;
  part->local = whole_of(part);
  part->placement = Replicate();
  part->settled = true;
}

void settle(Part* part) {
  Part* root = root_of(part);
  if (!root->settled) {
    root->local = whole_of(root);
    root->placement = Replicate();
    root->settled = true;
  }
  if (part != root && !part->settled) {
    follow(part);
  }
}

} // namespace accel::distributed
