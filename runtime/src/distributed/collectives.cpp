#include "distributed/collectives.h"

#include "core/operation_log.h"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>

namespace accel::distributed {
namespace {

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg();
}

/// What must be the same on all processes where a tensor is put together, but
/// for its sizes.
uint64_t detail_of(int64_t dim, const Cut& cut) {
  auto detail = static_cast<uint64_t>(dim) + 1;
  if (cut) {
    for (const int64_t point : cut->points) {
      detail = detail * 1099511628211ULL + static_cast<uint64_t>(point);
    }
  }
  return detail;
}

/// c10d sums no others.
bool can_be_summed(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
      return true;
    default:
      return false;
  }
}

/// Parts of dimension `dim` next to each other.
at::Tensor gather_plain(
    Axis& axis,
    const at::Tensor& local,
    int64_t dim,
    int64_t n,
    const Cut& cut,
    const char* operation) {
  auto& processes = axis.communicator(operation);
  int64_t most = 0;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    const auto [begin, end] = axis.range(n, cut, rank);
    most = std::max(most, end - begin);
  }
  auto message = plain(local).movedim(dim, 0).contiguous();
  if (message.size(0) != most) {
    auto sizes = message.sizes().vec();
    sizes[0] = most;
    auto padded = at::zeros(sizes, message.options());
    padded.narrow(0, 0, message.size(0)).copy_(message);
    message = std::move(padded);
  }
  ++traffic().gathers;
  traffic().bytes += static_cast<int64_t>(message.nbytes()) * axis.size();
  auto whole_sizes = local.sizes().vec();
  whole_sizes[dim] = n;
  const accel::detail::PurposeGuard purpose(
      operation, whole_sizes, detail_of(dim, cut));
  const auto parts = processes.all_gather(message);
  // Strides of dimensions of one row are those of a fresh tensor, too: the order
  // of later results follows them.
  auto sizes = local.sizes().vec();
  sizes[dim] = n;
  auto whole = at::empty(sizes, message.options());
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    const auto [begin, end] = axis.range(n, cut, rank);
    whole.narrow(dim, begin, end - begin)
        .copy_(parts[rank].narrow(0, 0, end - begin).movedim(0, dim));
  }
  return whole;
}

at::Tensor gather_shards(
    Axis& axis,
    const at::Tensor& local,
    int64_t dim,
    int64_t n,
    const Cut& cut,
    const char* operation) {
  Part* inner = part_of(local);
  if (inner == nullptr) {
    return gather_plain(axis, local, dim, n, cut, operation);
  }
  if (inner->placement.is_shard(dim)) {
    return gather_shards(
        axis,
        gather(*inner->axis, inner->local, inner->placement, inner->sizes, operation),
        dim, n, cut, operation);
  }
  auto sizes = inner->sizes;
  sizes[dim] = n;
  return make_tensor(
      *inner->axis,
      gather_shards(axis, inner->local, dim, n, cut, operation),
      inner->placement,
      sizes);
}

at::Tensor reduce_plain(
    Axis& axis,
    const at::Tensor& local,
    ReduceOp op,
    const char* operation) {
  auto& processes = axis.communicator(operation);
  ++traffic().reductions;
  traffic().bytes += static_cast<int64_t>(local.nbytes());
  const accel::detail::PurposeGuard purpose(
      operation, local.sizes(), static_cast<uint64_t>(op) << 32);
  const auto real = local.is_complex() ? c10::toRealValueType(local.scalar_type())
                                       : local.scalar_type();
  if (op == ReduceOp::kSum && can_be_summed(real)) {
    auto sum = plain(local).clone(at::MemoryFormat::Contiguous);
    auto numbers = local.is_complex() ? at::view_as_real(sum) : sum;
    processes.all_reduce(numbers);
    return sum;
  }
  const auto parts = processes.all_gather(plain(local).contiguous());
  auto result = parts[0].clone();
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    switch (op) {
      case ReduceOp::kSum:
        result = result.scalar_type() == at::kBool
            ? at::logical_or(result, parts[rank])
            : at::add(result, parts[rank]);
        break;
      case ReduceOp::kMax:
        result = at::maximum(result, parts[rank]);
        break;
      case ReduceOp::kMin:
        result = at::minimum(result, parts[rank]);
        break;
      case ReduceOp::kProduct:
        result = at::mul(result, parts[rank]);
        break;
    }
  }
  return result;
}

/// Where a local tensor lies along further axes, as numbers of which all
/// processes have as many.
at::Tensor further_places(const at::Tensor& local, int64_t axes) {
  auto places = at::zeros({axes, 4}, at::kLong);
  auto* row = places.data_ptr<int64_t>();
  const Part* part = part_of(local);
  for (int64_t i = 0; i < axes && part != nullptr; ++i, row += 4) {
    const auto& placement = part->placement;
    row[0] = part->axis->index();
    row[1] = placement.is_shard() ? 1 : placement.is_partial() ? 2 : 3;
    row[2] = placement.is_shard()
        ? placement.dim()
        : static_cast<int64_t>(placement.reduce_op());
    if (placement.is_shard() && placement.cut()) {
      row[3] = 1;
      for (const int64_t point : placement.cut()->points) {
        row[3] = static_cast<int64_t>(c10::hash_combine(row[3], point));
      }
    }
    part = part_of(part->local);
  }
  return places;
}

/// The same of all processes, by rank. Collective.
std::vector<at::Tensor> all_further_places(
    Axis& axis,
    const at::Tensor& local,
    const char* operation) {
  return axis.communicator(operation).all_gather(
      further_places(local, axis.further()));
}

/// The local tensor, in the same placements along further axes as the other
/// processes' along this one. A rule there sees sizes that are cut along this
/// axis: where one process has a single row it may have decided otherwise.
/// Collective where the mesh has further axes; what differs becomes replicated
/// there.
at::Tensor agreed(Axis& axis, const at::Tensor& local, const char* operation) {
  if (axis.further() == 0) {
    return local;
  }
  const auto places = all_further_places(axis, local, operation);
  const bool same = std::all_of(
      places.begin(), places.end(), [&](const at::Tensor& other) {
        return at::equal(other, places[0]);
      });
  return same ? local : gather_all(local, operation);
}

/// `reduce` of tensors that agree.
at::Tensor reduce_agreed(
    Axis& axis,
    const at::Tensor& local,
    ReduceOp op,
    const char* operation) {
  Part* inner = part_of(local);
  if (inner == nullptr) {
    return reduce_plain(axis, local, op, operation);
  }
  if (inner->placement.is_partial() && inner->placement != Partial(op)) {
    return reduce_agreed(
        axis,
        gather(*inner->axis, inner->local, inner->placement, inner->sizes, operation),
        op, operation);
  }
  return make_tensor(
      *inner->axis,
      reduce_agreed(axis, inner->local, op, operation),
      inner->placement,
      inner->sizes);
}

} // namespace

bool any_cut_further(
    Axis& axis,
    const at::Tensor& local,
    int64_t dim,
    const char* operation) {
  if (axis.further() == 0) {
    return false;
  }
  for (const auto& places : all_further_places(axis, local, operation)) {
    const auto* row = places.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < axis.further(); ++i, row += 4) {
      if (row[1] == 1 && row[2] == dim) {
        return true;
      }
    }
  }
  return false;
}

Traffic& traffic() {
  thread_local Traffic counters;
  return counters;
}

at::Tensor gather(
    Axis& axis,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    const char* operation) {
  if (placement.is_shard()) {
    return gather_shards(
        axis, agreed(axis, local, operation), placement.dim(),
        sizes[placement.dim()], placement.cut(), operation);
  }
  return placement.is_partial()
      ? reduce(axis, local, placement.reduce_op(), operation)
      : local;
}

at::Tensor gather_all(const at::Tensor& tensor, const char* operation) {
  at::Tensor whole = tensor;
  while (Part* part = part_of(whole)) {
    whole = gather(
        *part->axis, part->local, part->placement, part->sizes, operation);
  }
  return whole;
}

at::Tensor reduce(
    Axis& axis,
    const at::Tensor& local,
    ReduceOp op,
    const char* operation) {
  return reduce_agreed(axis, agreed(axis, local, operation), op, operation);
}

namespace {

/// The same without cuts of dimension `dim` along further axes.
at::Tensor without_cut(const at::Tensor& tensor, int64_t dim) {
  Part* inner = part_of(tensor);
  if (inner == nullptr) {
    return tensor;
  }
  auto local = without_cut(inner->local, dim);
  if (inner->placement.is_shard(dim)) {
    return gather(
        *inner->axis, local, inner->placement, inner->sizes, "a cut");
  }
  return local.is_same(inner->local)
      ? tensor
      : make_tensor(
            *inner->axis, std::move(local), inner->placement, inner->sizes);
}

/// A tensor full of `value` that is placed like `tensor` along further axes: a
/// rule there decides by places, which all processes must have alike.
at::Tensor filled_like(const at::Tensor& tensor, double value) {
  Part* inner = part_of(tensor);
  if (inner == nullptr) {
    return at::full_like(tensor, value);
  }
  const bool here =
      !inner->placement.is_sum() || inner->axis->rank() == 0;
  return make_tensor(
      *inner->axis,
      filled_like(inner->local, here ? value : 0),
      inner->placement,
      inner->sizes);
}

} // namespace

at::Tensor own_rows(
    const Axis& axis,
    const at::Tensor& whole,
    const Placement& placement) {
  const auto [begin, end] =
      axis.range(whole.size(placement.dim()), placement.cut());
  return without_cut(whole, placement.dim()).slice(placement.dim(), begin, end);
}

at::Tensor redistribute_local(
    Axis& axis,
    const at::Tensor& local,
    const Placement& from,
    const Placement& to,
    c10::IntArrayRef sizes,
    const char* operation) {
  if (from == to) {
    return local;
  }
  const auto whole = gather(axis, local, from, sizes, operation);
  if (to.is_shard()) {
    // Kernels that get contiguous tensors on one device get them here, too: some
    // do not look (layer norm's backward with its mean).
    const auto rows = own_rows(axis, whole, to);
    return whole.is_contiguous() ? rows.contiguous() : rows;
  }
  if (to.is_partial() && axis.rank() != 0) {
    switch (to.reduce_op()) {
      case ReduceOp::kSum:
        return filled_like(whole, 0);
      case ReduceOp::kProduct:
        return filled_like(whole, 1);
      default:
        return whole; // the greatest of equal values
    }
  }
  return whole;
}

} // namespace accel::distributed
