#include "distributed/collectives.h"

#include "core/operation_log.h"
#include "core/shared_memory.h"

#include <ATen/ATen.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <chrono>

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
    detail = detail * 1099511628211ULL + static_cast<uint64_t>(cut->blocks - 1);
  }
  return detail;
}

/// The rows of process `rank` in dimension `dim` of a tensor of all rows: a view,
/// which has one dimension more, the blocks, where the rows are cut in blocks.
at::Tensor rows_of(
    const Axis& axis,
    const at::Tensor& whole,
    int64_t dim,
    const Cut& cut,
    int64_t rank) {
  const int64_t n = whole.size(dim);
  if (!cut || cut->blocks == 1) {
    const auto [begin, end] = axis.range(n, cut, rank);
    return whole.narrow(dim, begin, end - begin);
  }
  const int64_t begin = cut->points[rank];
  return whole.unflatten(dim, {cut->blocks, n / cut->blocks})
      .narrow(dim + 1, begin, cut->points[rank + 1] - begin);
}

/// A process's part with the same dimensions.
at::Tensor like_rows(const at::Tensor& part, int64_t dim, const Cut& cut) {
  return !cut || cut->blocks == 1
      ? part
      : part.unflatten(dim, {cut->blocks, part.size(dim) / cut->blocks});
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
    most = std::max(most, axis.rows(n, cut, rank));
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
    const auto part =
        parts[rank].narrow(0, 0, axis.rows(n, cut, rank)).movedim(0, dim);
    rows_of(axis, whole, dim, cut, rank).copy_(like_rows(part, dim, cut));
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

/// The processes' tensors, added or the like in the order of the ranks: the same
/// bits everywhere.
at::Tensor combined(const std::vector<at::Tensor>& parts, ReduceOp op) {
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

/// Counts the time that it lives as that of a reduction.
class ReductionTime {
 public:
  ReductionTime() : begin_(Clock::now()), waited_(SharedMemory::waited()) {}
  ~ReductionTime() {
    traffic().reduction_nanoseconds +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(
            Clock::now() - begin_ - (SharedMemory::waited() - waited_))
            .count();
  }
  ReductionTime(const ReductionTime&) = delete;
  ReductionTime& operator=(const ReductionTime&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  using SharedMemory = accel::detail::SharedMemory;
  Clock::time_point begin_;
  std::chrono::nanoseconds waited_;
};

at::Tensor reduce_plain(
    Axis& axis,
    const at::Tensor& local,
    ReduceOp op,
    const char* operation) {
  auto& processes = axis.communicator(operation);
  const ReductionTime time;
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
  return combined(processes.all_gather(plain(local).contiguous()), op);
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
      row[3] = static_cast<int64_t>(
          c10::hash_combine(row[3], placement.cut()->blocks));
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

std::vector<bool> agree(
    Axis& axis,
    const std::vector<at::Tensor>& locals,
    const char* operation) {
  std::vector<bool> alike(locals.size(), true);
  if (axis.further() == 0 || locals.empty()) {
    return alike;
  }
  std::vector<at::Tensor> own;
  for (const auto& local : locals) {
    own.push_back(further_places(local, axis.further()));
  }
  const auto all = axis.communicator(operation).all_gather(at::stack(own));
  for (size_t i = 0; i < locals.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    alike[i] = std::all_of(all.begin(), all.end(), [&](const at::Tensor& places) {
      return at::equal(places[k], all[0][k]);
    });
  }
  return alike;
}

at::Tensor agreed(Axis& axis, const at::Tensor& local, const char* operation) {
  return agree(axis, {local}, operation)[0] ? local : gather_all(local, operation);
}

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
  const int64_t dim = placement.dim();
  const auto uncut = without_cut(whole, dim);
  if (placement.in_blocks()) {
    // A copy, in the order of memory that a range would have.
    const auto rows = rows_of(axis, uncut, dim, placement.cut(), axis.rank());
    return in_order_of(rows.flatten(dim, dim + 1), uncut);
  }
  const auto [begin, end] = axis.range(whole.size(dim), placement.cut());
  return uncut.slice(dim, begin, end);
}

void set_own_rows(
    const Axis& axis,
    const at::Tensor& whole,
    const Placement& placement,
    const at::Tensor& rows) {
  rows_of(axis, whole, placement.dim(), placement.cut(), axis.rank())
      .copy_(like_rows(rows, placement.dim(), placement.cut()));
}

namespace {

/// Every process sends each other one what that is to have of its tensor, and
/// nothing more. Collective.
std::vector<at::Tensor> exchange(
    Axis& axis,
    const accel::detail::Exchange& parts,
    const Placement& from,
    const Placement& to,
    c10::IntArrayRef sizes,
    const char* operation) {
  ++traffic().exchanges;
  traffic().bytes += static_cast<int64_t>(parts.message.nbytes());
  const uint64_t of_from = from.is_shard()
      ? detail_of(from.dim(), from.cut())
      : static_cast<uint64_t>(from.reduce_op()) << 32;
  const accel::detail::PurposeGuard purpose(
      operation, sizes, of_from * 31 + detail_of(to.dim(), to.cut()));
  return axis.communicator(operation).all_to_all(parts);
}

/// Rows of dimension `from.dim()` become rows of `to.dim()`, or of the same one
/// cut at other points; both are ranges.
at::Tensor shards_to_shards(
    Axis& axis,
    const at::Tensor& local,
    const Placement& from,
    const Placement& to,
    c10::IntArrayRef sizes,
    const char* operation) {
  const int64_t i = from.dim();
  const int64_t j = to.dim();
  const int64_t me = axis.rank();
  const auto has = [&](int64_t rank) {
    return axis.range(sizes[i], from.cut(), rank);
  };
  const auto gets = [&](int64_t rank) {
    return axis.range(sizes[j], to.cut(), rank);
  };
  // What process `a` sends to process `b`: the rows of dimension j, as a range of
  // its own part.
  const auto sent = [&](int64_t a, int64_t b) -> std::pair<int64_t, int64_t> {
    const auto [begin, end] = gets(b);
    if (i != j) {
      return {begin, end - begin};
    }
    const auto [own_begin, own_end] = has(a);
    const int64_t first = std::clamp(begin, own_begin, own_end);
    return {
        first - own_begin, std::clamp(end, own_begin, own_end) - first};
  };
  int64_t others = 1;
  for (int64_t d = 0; d < local.dim(); ++d) {
    others *= d == i || d == j ? 1 : local.size(d);
  }
  // Elements of a row of dimension j in the part of a process.
  const auto row = [&](int64_t rank) {
    return i == j ? others : others * (has(rank).second - has(rank).first);
  };
  accel::detail::Exchange parts;
  const auto mine = plain(local);
  std::vector<at::Tensor> pieces;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    const auto [begin, count] = sent(me, rank);
    pieces.push_back(mine.narrow(j, begin, count).reshape({-1}));
    parts.sends.push_back(count * row(me));
    const auto [its_begin, its_count] = sent(rank, me);
    parts.begins.push_back(its_begin * row(rank));
    parts.counts.push_back(its_count * row(rank));
    parts.longest = std::max(
        parts.longest,
        i == j ? (has(rank).second - has(rank).first) * others
               : sizes[j] * row(rank));
  }
  parts.message = at::cat(pieces);
  const auto received =
      exchange(axis, parts, from, to, sizes, operation);
  auto own_sizes = local.sizes().vec();
  own_sizes[i] = sizes[i];
  own_sizes[j] = gets(me).second - gets(me).first;
  auto result = at::empty(own_sizes, mine.options());
  int64_t at = 0;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    auto piece_sizes = own_sizes;
    piece_sizes[i] = i == j ? sent(rank, me).second
                            : has(rank).second - has(rank).first;
    result.narrow(i, at, piece_sizes[i])
        .copy_(received[rank].view(piece_sizes));
    at += piece_sizes[i];
  }
  return result;
}

/// Each process puts its own rows of a sum (a maximum …) together: half of the
/// work of the whole sum, and what it does not need is not sent to it.
at::Tensor partial_to_shards(
    Axis& axis,
    const at::Tensor& local,
    const Placement& from,
    const Placement& to,
    c10::IntArrayRef sizes,
    const char* operation) {
  const int64_t dim = to.dim();
  const int64_t n = sizes[dim];
  const auto rows_first = plain(local).movedim(dim, 0).contiguous();
  const int64_t others = n == 0 ? 0 : rows_first.numel() / n;
  const auto [begin, end] = axis.range(n, to.cut());
  accel::detail::Exchange parts;
  parts.message = rows_first.view({-1});
  parts.longest = rows_first.numel();
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    parts.sends.push_back(axis.rows(n, to.cut(), rank) * others);
    parts.begins.push_back(begin * others);
    parts.counts.push_back((end - begin) * others);
  }
  const auto received =
      exchange(axis, parts, from, to, sizes, operation);
  auto own_sizes = rows_first.sizes().vec();
  own_sizes[0] = end - begin;
  return combined(received, from.reduce_op())
      .view(own_sizes)
      .movedim(0, dim)
      .contiguous();
}

} // namespace

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
  if (!from.is_replicate() && to.is_shard() && !from.in_blocks() &&
      !to.in_blocks()) {
    const auto same = agreed(axis, local, operation);
    if (part_of(same) == nullptr) {
      return from.is_shard()
          ? shards_to_shards(axis, same, from, to, sizes, operation)
          : partial_to_shards(axis, same, from, to, sizes, operation);
    }
  }
  if (from.is_shard() && to.is_sum() && !from.in_blocks() && axis.further() == 0) {
    // Each process has its rows, and zeros where the others have theirs.
    auto among_zeros = at::zeros(sizes, local.options());
    set_own_rows(axis, among_zeros, from, local);
    return among_zeros;
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
