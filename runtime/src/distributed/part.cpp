#include "distributed/part.h"

#include "core/libtorch_releases.h"
#include "distributed/collectives.h"
#include "distributed/memory_order.h"
#include "distributed/thread_table.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

namespace accel::distributed {
namespace {

const char* const kRawMemory =
    "accel: the memory of a distributed tensor was asked for (data_ptr, "
    "accessor, storage, or saving the tensor itself), but this "
    "process holds only its part. Take the whole tensor first, on all "
    "processes: accelerator.full(tensor), or "
    "accel::distributed::full_tensor(tensor).";

c10::Storage make_no_storage(c10::Device device) {
  auto impl = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      0,
      c10::DataPtr(nullptr, device),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  impl->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::string(kRawMemory));
  return c10::Storage(std::move(impl));
}

/// References to the storage without memory that all tensors on the host share:
/// a thread keeps those that its tensors had, which spares it counting them.
class HostStorage {
 public:
  static c10::Storage take() {
    if (kept_ > 0) {
      --kept_;
      return c10::Storage(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim(shared()));
    }
    return c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(shared()));
  }
  static void give(c10::Storage& storage) {
    if (storage.unsafeGetStorageImpl() == shared() && kept_ < kMostKept) {
      (void)storage.unsafeReleaseStorageImpl();
      ++kept_;
    }
  }

 private:
  static c10::StorageImpl* shared() {
    static c10::StorageImpl* const impl =
        make_no_storage(at::kCPU).unsafeReleaseStorageImpl();
    return impl;
  }
  static inline ACCEL_QUICK_THREAD_LOCAL int kept_ = 0;
};

/// A storage without memory that says what to do instead, one for each device.
c10::Storage no_storage(c10::Device device) {
  if (device.is_cpu()) {
    return HostStorage::take();
  }
  auto& storages = thread_table<std::vector<c10::Storage>>();
  for (const auto& storage : storages) {
    if (storage.device() == device) {
      return storage;
    }
  }
  storages.push_back(make_no_storage(device));
  return storages.back();
}

/// A TensorImpl as any other, made quickly: every operator makes one.
class Impl final : public c10::TensorImpl, public Pooled<Impl> {
 public:
  using Pooled<Impl>::operator new;
  using Pooled<Impl>::operator delete;

  /// With these keys, autograd's among them, and this version counter.
  C10_ALWAYS_INLINE Impl(
      c10::Storage&& storage,
      c10::DispatchKeySet keys,
      caffe2::TypeMeta dtype,
      c10::VariableVersion version)
      // TensorImpl makes a version counter where there are keys of autograd.
      : TensorImpl(VIEW, std::move(storage), {}, dtype) {
    key_set_ = keys;
    version_counter_ = std::move(version);
  }

  ~Impl() override {
    HostStorage::give(storage_);
    if (extra_meta_ != nullptr && holds_a_part_only()) {
      extra_meta_->backend_meta_.reset();
      if (Spares<c10::ExtraMeta>::keep(extra_meta_.get())) {
        (void)extra_meta_.release();
      }
    }
  }

  /// What autograd saves of a result is a copy.
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version,
      bool allow_change) const override {
    return can_be_copied()
        ? copy(c10::VariableVersion(version), allow_change)
        : TensorImpl::shallow_copy_and_detach(version, allow_change);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version,
      bool allow_change) const override {
    return can_be_copied()
        ? copy(std::move(version), allow_change)
        : TensorImpl::shallow_copy_and_detach(std::move(version), allow_change);
  }

  void hold(PartPtr part) {
    extra_meta_.reset(Spares<c10::ExtraMeta>::take());
    extra_meta_->backend_meta_ = std::move(part);
  }

  /// `set_sizes_contiguous`, which finds out again that the tensor is
  /// contiguous.
  void become_contiguous(c10::IntArrayRef sizes, int64_t offset = 0) {
    storage_offset_ = offset;
    if (sizes.size() > 3) {
      set_sizes_contiguous(sizes); // channels-last is looked for
      return;
    }
    // Copying all is quicker than making room.
    sizes_and_strides_ = of_dims[sizes.size()];
    int64_t* const own = sizes_and_strides_.sizes_data();
    int64_t* const strides = sizes_and_strides_.strides_data();
    int64_t step = 1;
    int64_t count = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      const int64_t n = sizes[d];
      own[d] = n;
      strides[d] = step;
      step *= n > 1 ? n : 1;
      count *= n;
    }
    numel_ = count;
    is_contiguous_ = true;
    is_non_overlapping_and_dense_ = true;
  }

  /// `base`, which has two dimensions, transposed.
  void become_transposed(const c10::TensorImpl& base) {
    const int64_t rows = base.sizes()[1];
    const int64_t columns = base.sizes()[0];
    const int64_t row = base.strides()[1];
    const int64_t column = base.strides()[0];
    sizes_and_strides_ = of_dims[2];
    int64_t* const sizes = sizes_and_strides_.sizes_data();
    int64_t* const strides = sizes_and_strides_.strides_data();
    sizes[0] = rows;
    sizes[1] = columns;
    strides[0] = row;
    strides[1] = column;
    storage_offset_ = base.storage_offset();
    numel_ = rows * columns;
    is_contiguous_ = numel_ == 0 ||
        ((columns == 1 || column == 1) && (rows == 1 || row == columns));
    is_non_overlapping_and_dense_ = base.is_non_overlapping_and_dense();
  }

 private:
  bool holds_a_part_only() const {
    return extra_meta_->symbolic_shape_meta_ == nullptr &&
        !accel::detail::has_names(*extra_meta_, 0) &&
        !accel::detail::is_fake(*extra_meta_, 0) &&
        !extra_meta_->custom_data_ptr_error_msg_ &&
        !extra_meta_->custom_storage_error_msg_;
  }

  /// Whether it is as it was made, and no mode of Python looks on.
  bool can_be_copied() const {
    return extra_meta_ != nullptr && holds_a_part_only() &&
        sizes_strides_policy_ == 0 && !device_policy_ && !layout_policy_ &&
        !storage_access_should_throw_ && !key_set_.has_any(c10::python_ks) &&
        c10::impl::TorchDispatchModeTLS::stack_len() == 0;
  }

  /// What TensorImpl does, with metadata that is kept.
  c10::intrusive_ptr<TensorImpl> copy(
      c10::VariableVersion version,
      bool allow_change) const {
    auto impl = c10::make_intrusive<Impl>(
        c10::Storage(storage_), key_set_, data_type_,
        key_set_.has_any(c10::inplace_or_view_ks) ? std::move(version)
                                                  : c10::VariableVersion());
    impl->extra_meta_.reset(Spares<c10::ExtraMeta>::take());
    impl->extra_meta_->backend_meta_ = extra_meta_->backend_meta_;
    impl->sizes_and_strides_ = sizes_and_strides_;
    impl->storage_offset_ = storage_offset_;
    impl->numel_ = numel_;
    impl->is_contiguous_ = is_contiguous_;
    impl->is_channels_last_ = is_channels_last_;
    impl->is_channels_last_contiguous_ = is_channels_last_contiguous_;
    impl->is_channels_last_3d_ = is_channels_last_3d_;
    impl->is_channels_last_3d_contiguous_ = is_channels_last_3d_contiguous_;
    impl->is_non_overlapping_and_dense_ = is_non_overlapping_and_dense_;
    impl->is_wrapped_number_ = is_wrapped_number_;
    impl->allow_tensor_metadata_change_ = allow_change;
    impl->reserved_ = reserved_;
    return impl;
  }

  static c10::impl::SizesAndStrides room_for(size_t dims) {
    c10::impl::SizesAndStrides room;
    room.resize(dims);
    return room;
  }
  static inline const c10::impl::SizesAndStrides of_dims[] = {
      room_for(0), room_for(1), room_for(2), room_for(3)};
};

/// What a distributed tensor's keys have in common with its local tensor's.
const uint64_t kKept = c10::full_backend_mask |
    bits_of(c10::DispatchKeySet(c10::DispatchKey::Dense)) |
    bits_of(c10::autograd_dispatch_keyset_with_ADInplaceOrView) |
    bits_of(c10::autocast_dispatch_keyset);

/// The tensor of a part, still without sizes. `version`: its version counter; a
/// new one where that is disabled. As LibTorch makes views, it is an inference
/// tensor where the local tensor is one.
C10_ALWAYS_INLINE at::Tensor new_tensor(
    PartPtr part,
    c10::VariableVersion version) {
  auto& local = *part->local.unsafeGetTensorImpl();
  if (!version.enabled() && !local.is_inference()) {
    version = c10::VariableVersion(0);
  }
  const c10::DispatchKeySet kept(
      c10::DispatchKeySet::RAW, bits_of(local.key_set()) & kKept);
  auto impl = c10::make_intrusive<Impl>(
      no_storage(local.device()), kept | c10::DispatchKeySet(kKey),
      local.dtype(), std::move(version));
  impl->hold(std::move(part));
  return at::Tensor(std::move(impl));
}

/// The version counter of a local tensor that nobody else holds. Nothing
/// counts it: operators on local tensors run below what does. So the tensor
/// whose part it is may have it, and makes none of its own.
c10::VariableVersion version_of_fresh(const at::Tensor& local) {
  const auto& version = local.unsafeGetTensorImpl()->version_counter();
  return local.use_count() == 1 && version.unique()
      ? version
      : c10::VariableVersion();
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
    if ((points[rank] - points[rank - 1]) * placement.cut()->blocks < 2) {
      return true;
    }
  }
  return false;
}

at::Tensor make_tensor(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef like,
    bool exact) {
  const bool known = like.size() == sizes.size();
  const bool single = has_single_rows(axis, placement, sizes);
  if (single && part_of(local) != nullptr) {
    // Along further axes it must be the same on all processes whether a tensor
    // is a view, which its strides here would decide.
    local = local.clone(at::MemoryFormat::Contiguous);
  }
  Sizes strides; // empty: the usual ones
  const bool dense = local.is_non_overlapping_and_dense();
  if (known && (exact || single || !dense)) {
    strides = strides_without_gaps(sizes, like);
  } else if (single) {
    dense_strides(
        sizes, order_beside(placement.dim(), local.sizes(), local.strides()),
        strides);
  } else if (dense && !has_usual_strides(local)) {
    dense_strides(sizes, order_of(local.sizes(), local.strides()), strides);
  } // Parts with gaps (of a transposed tensor) are copied: in whatever order.
  if (strides.empty() || has_usual_strides(sizes, strides)) {
    if (!has_usual_strides(local)) {
      local = laid_out(local, usual_strides(local.sizes()));
    }
    return make_contiguous(axis, std::move(local), placement, sizes);
  }
  local = laid_out(local, strides_in_part(sizes, strides, local.sizes()));
  auto version = version_of_fresh(local);
  auto part = c10::make_intrusive<Part>(
      axis, std::move(local), placement, sizes);
  part->strides = strides;
  auto tensor = new_tensor(part, std::move(version));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, part->strides);
  return tensor;
}

at::Tensor make_contiguous(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  auto version = version_of_fresh(local);
  auto tensor = new_tensor(
      c10::make_intrusive<Part>(axis, std::move(local), placement, sizes),
      std::move(version));
  static_cast<Impl*>(tensor.unsafeGetTensorImpl())->become_contiguous(sizes);
  return tensor;
}

at::Tensor make_local_view(
    Axis& axis,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  auto tensor = new_tensor(
      c10::make_intrusive<Part>(axis, at::Tensor(local), placement, sizes), {});
  static_cast<Impl*>(tensor.unsafeGetTensorImpl())->become_contiguous(sizes);
  return tensor;
}

namespace {

at::Tensor new_view(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::intrusive_ptr<ViewOf> view) {
  auto part = c10::make_intrusive<Part>(axis, std::move(local), placement, sizes);
  part->settled = root_of(view->parent.get())->settled;
  part->view = std::move(view);
  // LibTorch gives a view its base's version counter, for which it copies the
  // tensor where the counter that it has is somebody else's, too.
  return new_tensor(std::move(part), {});
}

/// A view of a local tensor that is nothing but dense, still without sizes.
at::Tensor local_view(const at::Tensor& local) {
  const auto& impl = *local.unsafeGetTensorImpl();
  return at::Tensor(c10::make_intrusive<Impl>(
      c10::Storage(local.storage()), impl.key_set(), impl.dtype(), impl.version_counter()));
}

Impl* impl_of(const at::Tensor& made) {
  return static_cast<Impl*>(made.unsafeGetTensorImpl());
}

} // namespace

at::Tensor make_view(
    Axis& axis,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    int64_t offset,
    c10::intrusive_ptr<ViewOf> view) {
  auto tensor =
      new_view(axis, std::move(local), placement, sizes, std::move(view));
  impl_of(tensor)->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor view_transposed(
    const at::Tensor& base,
    Part* part,
    const Placement& placement,
    const c10::OperatorHandle& op) {
  auto local = local_view(part->local);
  impl_of(local)->become_transposed(*part->local.unsafeGetTensorImpl());
  const int64_t sizes[] = {base.size(1), base.size(0)};
  auto tensor = new_view(
      *part->axis, std::move(local), placement, sizes,
      c10::make_intrusive<ViewOf>(PartPtr::reclaim_copy(part), op));
  impl_of(tensor)->become_transposed(*base.unsafeGetTensorImpl());
  return tensor;
}

at::Tensor view_contiguous(
    const at::Tensor& base,
    Part* part,
    c10::IntArrayRef local_sizes,
    const Placement& placement,
    c10::IntArrayRef sizes,
    const c10::OperatorHandle& op) {
  auto local = local_view(part->local);
  impl_of(local)->become_contiguous(
      local_sizes, part->local.storage_offset());
  auto view = c10::make_intrusive<ViewOf>(PartPtr::reclaim_copy(part), op);
  assign(view->integers.emplace(), sizes);
  auto tensor = new_view(
      *part->axis, std::move(local), placement, sizes, std::move(view));
  impl_of(tensor)->become_contiguous(sizes, base.storage_offset());
  return tensor;
}

Geometry geometry_of(const at::Tensor& tensor) {
  Geometry geometry;
  assign(geometry.sizes, tensor.sizes());
  assign(geometry.strides, tensor.strides());
  geometry.offset = tensor.storage_offset();
  return geometry;
}

at::Tensor view_strided(
    Part* part,
    const Geometry& local,
    const Placement& placement,
    const Geometry& whole,
    c10::intrusive_ptr<ViewOf> view) {
  auto own = local_view(part->local);
  impl_of(own)->set_sizes_and_strides(
      local.sizes, local.strides, local.offset);
  return make_view(
      *part->axis, std::move(own), placement, whole.sizes, whole.strides,
      whole.offset, std::move(view));
}

at::Tensor share_part(const at::Tensor& tensor) {
  Part* part = part_of(tensor);
  auto copy = new_tensor(PartPtr::reclaim_copy(part), {});
  auto* impl = static_cast<Impl*>(copy.unsafeGetTensorImpl());
  if (has_usual_strides(tensor) && tensor.storage_offset() == 0) {
    impl->become_contiguous(tensor.sizes());
  } else {
    impl->set_sizes_and_strides(
        tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return copy;
}

} // namespace accel::distributed
