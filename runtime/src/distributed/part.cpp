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
#include <memory>

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
  C10_ALWAYS_INLINE static c10::Storage take() {
    if (C10_LIKELY(kept_ > 0)) {
      --kept_;
      return c10::Storage(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim(shared_));
    }
    return c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(shared_));
  }
  C10_ALWAYS_INLINE static void give(c10::Storage& storage) {
    if (C10_LIKELY(
            storage.unsafeGetStorageImpl() == shared_ && kept_ < kMostKept)) {
      (void)storage.unsafeReleaseStorageImpl();
      ++kept_;
    }
  }

 private:
  static inline c10::StorageImpl* const shared_ =
      make_no_storage(at::kCPU).unsafeReleaseStorageImpl();
  static inline ACCEL_QUICK_THREAD_LOCAL int kept_ = 0;
};

/// A storage without memory that says what to do instead, one for each device.
C10_NOINLINE c10::Storage no_storage(c10::Device device) {
  auto& storages = thread_table<std::vector<c10::Storage>>();
  for (const auto& storage : storages) {
    if (storage.device() == device) {
      return storage;
    }
  }
  storages.push_back(make_no_storage(device));
  return storages.back();
}

/// What a distributed tensor has beside its TensorImpl. A thread keeps that of a
/// tensor that goes for the next one.
struct Belongings {
  /// With a blank part.
  std::unique_ptr<c10::ExtraMeta> meta;
  /// At 0, and nobody else's; disabled where there is none.
  c10::VariableVersion version;

  C10_ALWAYS_INLINE static Belongings take() {
    auto own = Spares<Belongings>::take();
    if (C10_UNLIKELY(own.meta == nullptr)) {
      own.meta = new_meta();
    }
    return own;
  }

 private:
  C10_NOINLINE static std::unique_ptr<c10::ExtraMeta> new_meta() {
    auto meta = std::make_unique<c10::ExtraMeta>();
    meta->backend_meta_ = c10::make_intrusive<Part>();
    return meta;
  }
};

/// Metadata without a part, for tensors that share one.
using BareMeta = std::unique_ptr<c10::ExtraMeta>;
BareMeta meta_of(PartPtr part) {
  auto meta = Spares<BareMeta>::take();
  if (C10_UNLIKELY(meta == nullptr)) {
    meta = std::make_unique<c10::ExtraMeta>();
  }
  meta->backend_meta_ = std::move(part);
  return meta;
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
    if (extra_meta_ != nullptr && key_set_.has(kKey) && holds_a_part_only()) {
      leave_belongings();
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

  void hold(std::unique_ptr<c10::ExtraMeta> meta) {
    extra_meta_ = std::move(meta);
  }
  Part& part() const {
    return static_cast<Part&>(*extra_meta_->backend_meta_);
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
    copy_few(of_dims[sizes.size()], sizes_and_strides_);
    int64_t* const own = sizes_and_strides_.sizes_data();
    int64_t* const strides = sizes_and_strides_.strides_data();
    int64_t step = 1;
    int64_t count = 1;
    ACCEL_FEW_ROUNDS
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

  /// Sizes and strides of `like`, which is contiguous and has few dimensions.
  void become_contiguous_as(const c10::TensorImpl& like) {
    // What is protected in a TensorImpl of another class is found so.
    const auto& its = like.*(&Impl::sizes_and_strides_);
    copy_few(its, sizes_and_strides_);
    numel_ = like.numel();
    is_contiguous_ = true;
    is_non_overlapping_and_dense_ = true;
  }

  /// `base`, which has two dimensions, transposed.
  void become_transposed(const c10::TensorImpl& base) {
    const int64_t rows = base.sizes()[1];
    const int64_t columns = base.sizes()[0];
    const int64_t row = base.strides()[1];
    const int64_t column = base.strides()[0];
    copy_few(of_dims[2], sizes_and_strides_);
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
  /// What is left of the tensor is for the next one; of a part that others have,
  /// too, the metadata.
  void leave_belongings() {
    auto& part = extra_meta_->backend_meta_;
    if (C10_LIKELY(
            part.use_count() == 1 && static_cast<Part*>(part.get())->end())) {
      const bool as_new = version_counter_.enabled() &&
          version_counter_.unique() &&
          version_counter_.current_version() == 0;
      Spares<Belongings>::keep(
          {std::move(extra_meta_),
           as_new ? std::move(version_counter_) : c10::VariableVersion()});
    } else {
      leave_meta();
    }
  }
  C10_NOINLINE void leave_meta() {
    extra_meta_->backend_meta_.reset();
    Spares<BareMeta>::keep(std::move(extra_meta_));
  }

  bool holds_a_part_only() const {
    return extra_meta_->symbolic_shape_meta_ == nullptr &&
        !accel::detail::has_names(*extra_meta_, 0) &&
        !accel::detail::is_fake(*extra_meta_, 0) &&
        !extra_meta_->custom_data_ptr_error_msg_ &&
        !extra_meta_->custom_storage_error_msg_;
  }

  /// Whether it is as it was made, and no mode of Python looks on.
  bool can_be_copied() const {
    return extra_meta_ != nullptr && key_set_.has(kKey) && holds_a_part_only() &&
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
    impl->extra_meta_ = meta_of(PartPtr::reclaim_copy(&part()));
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

  /// `to = from`, where neither has memory of its own.
  C10_ALWAYS_INLINE static void copy_few(
      const c10::impl::SizesAndStrides& from,
      c10::impl::SizesAndStrides& to) {
    if (from.size() > C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE ||
        to.size() > C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE || &from == &to) {
      __builtin_unreachable();
    }
    to = from;
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

/// A new version counter; none where the local tensor has none.
C10_NOINLINE c10::VariableVersion version_beside(c10::TensorImpl& local) {
  return local.is_inference() ? c10::VariableVersion() : c10::VariableVersion(0);
}

/// A tensor without a part and sizes. As LibTorch makes views, it is an inference
/// tensor where the local tensor is one.
C10_ALWAYS_INLINE c10::intrusive_ptr<Impl> new_impl(
    c10::TensorImpl& local,
    c10::VariableVersion&& version) {
  if (C10_UNLIKELY(!version.enabled() || local.is_inference())) {
    version = version_beside(local);
  }
  const c10::DispatchKeySet kept(
      c10::DispatchKeySet::RAW, bits_of(local.key_set()) & kKept);
  const auto device = local.device();
  return c10::make_intrusive<Impl>(
      C10_LIKELY(device.is_cpu()) ? HostStorage::take() : no_storage(device),
      kept | c10::DispatchKeySet(kKey),
      local.dtype(), std::move(version));
}

/// The tensor of a new part, still without sizes.
C10_ALWAYS_INLINE c10::intrusive_ptr<Impl> new_tensor(
    Axis& axis,
    at::Tensor&& local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  auto own = Belongings::take();
  auto impl =
      new_impl(*local.unsafeGetTensorImpl(), std::move(own.version));
  impl->hold(std::move(own.meta));
  impl->part().begin(axis, std::move(local), placement, sizes);
  return impl;
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
  auto tensor = new_tensor(axis, std::move(local), placement, sizes);
  tensor->part().strides = strides;
  tensor->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(tensor));
}

at::Tensor make_contiguous(
    Axis& axis,
    at::Tensor&& local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  auto tensor = new_tensor(axis, std::move(local), placement, sizes);
  tensor->become_contiguous(sizes);
  return at::Tensor(std::move(tensor));
}

C10_NOINLINE static at::Tensor make_like_slowly(
    const Part& part,
    at::Tensor&& local,
    const at::Tensor& like) {
  return like.is_contiguous() && local.is_contiguous()
      ? make_contiguous(
            *part.axis, std::move(local), part.placement, like.sizes())
      : make_tensor(
            *part.axis, std::move(local), part.placement, like.sizes(),
            like.strides());
}

at::Tensor make_like(const Part& part, at::Tensor&& local, const at::Tensor& like) {
  const auto& impl = *like.unsafeGetTensorImpl();
  const auto sizes = impl.sizes();
  if (C10_UNLIKELY(
          !impl.is_contiguous() || !local.is_contiguous() ||
          sizes.size() > 3 || impl.numel() == 0)) {
    return make_like_slowly(part, std::move(local), like);
  }
  auto tensor =
      new_tensor(*part.axis, std::move(local), part.placement, sizes);
  tensor->become_contiguous_as(impl);
  return at::Tensor(std::move(tensor));
}

at::Tensor make_local_view(
    Axis& axis,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  return make_contiguous(axis, at::Tensor(local), placement, sizes);
}

namespace {

/// LibTorch gives a view its base's version counter, for which it copies the
/// tensor where the counter that it has is somebody else's, too.
c10::intrusive_ptr<Impl> new_view(
    Axis& axis,
    at::Tensor&& local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::intrusive_ptr<ViewOf> view) {
  auto tensor = new_tensor(axis, std::move(local), placement, sizes);
  auto& part = tensor->part();
  part.settled = root_of(view->parent.get())->settled;
  part.view = std::move(view);
  return tensor;
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
  tensor->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(tensor));
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
  tensor->become_transposed(*base.unsafeGetTensorImpl());
  return at::Tensor(std::move(tensor));
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
  tensor->become_contiguous(sizes, base.storage_offset());
  return at::Tensor(std::move(tensor));
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
  auto impl = new_impl(*part->local.unsafeGetTensorImpl(), {});
  impl->hold(meta_of(PartPtr::reclaim_copy(part)));
  if (has_usual_strides(tensor) && tensor.storage_offset() == 0) {
    impl->become_contiguous(tensor.sizes());
  } else {
    impl->set_sizes_and_strides(
        tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return at::Tensor(std::move(impl));
}

} // namespace accel::distributed
