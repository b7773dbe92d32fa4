#include "distributed/part.h"

#include "distributed/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <numeric>

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

at::Tensor new_tensor(PartPtr part, const at::Tensor& local) {
  static const auto backend =
      c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask) |
      c10::DispatchKeySet(c10::DispatchKey::Dense);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(no_storage(local.device())),
      (local.key_set() & backend) | c10::DispatchKeySet(kKey),
      local.dtype());
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(part));
  return tensor;
}

} // namespace

void whole_strides(
    const at::Tensor& local,
    c10::IntArrayRef sizes,
    Sizes& strides) {
  const auto dims = static_cast<int64_t>(sizes.size());
  c10::SmallVector<int64_t, 5> order(dims);
  std::iota(order.begin(), order.end(), 0);
  if (!local.is_contiguous()) {
    // Innermost last; dimensions of one row keep their place.
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return local.size(a) != 1 && local.size(b) != 1 &&
          local.stride(a) > local.stride(b);
    });
  }
  strides.resize(dims);
  int64_t step = 1;
  for (int64_t i = dims - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(sizes[order[i]], 1);
  }
}

at::Tensor make_tensor(
    Axis& axis,
    at::Tensor local,
    Placement placement,
    c10::IntArrayRef sizes) {
  const bool contiguous = local.is_contiguous();
  if (!contiguous && !local.is_non_overlapping_and_dense()) {
    local = local.contiguous();
  }
  auto tensor = new_tensor(
      c10::make_intrusive<Part>(axis, local, std::move(placement), sizes),
      local);
  auto* impl = tensor.unsafeGetTensorImpl();
  if (contiguous || local.is_contiguous()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    Sizes strides;
    whole_strides(local, sizes, strides);
    impl->set_sizes_and_strides(sizes, strides);
  }
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

void replace_part(const at::Tensor& tensor, PartPtr part) {
  auto* impl = tensor.unsafeGetTensorImpl();
  Sizes strides;
  whole_strides(part->local, part->sizes, strides);
  impl->set_sizes_and_strides(part->sizes, strides);
  impl->set_backend_meta(std::move(part));
}

const at::Tensor& whole_of(Part* part) {
  if (part->view == nullptr) {
    if (!part->whole.defined()) {
      at::Tensor whole = gather(
          *part->axis, part->local, part->placement, part->sizes, "a view");
      // Views of it have the strides that views of a whole tensor would have.
      Sizes strides;
      whole_strides(part->local, part->sizes, strides);
      if (whole.strides() != c10::IntArrayRef(strides)) {
        auto own = at::empty_strided(part->sizes, strides, whole.options());
        own.copy_(whole);
        whole = std::move(own);
      }
      part->whole = std::move(whole);
    }
    return part->whole;
  }
  if (!part->whole.defined()) {
    const auto& view = *part->view;
    torch::jit::Stack stack{whole_of(view.parent.get())};
    stack.insert(stack.end(), view.arguments.begin(), view.arguments.end());
    view.op.callBoxed(stack);
    part->whole = stack.back().isTensor()
        ? stack.back().toTensor()
        : stack.back().toTensorVector()[view.output];
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
