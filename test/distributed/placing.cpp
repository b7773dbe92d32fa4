#include "placing.h"

#include "distributed/collectives.h"
#include "distributed/part.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace accel::distributed::test {
namespace {

/// Points of `parts` parts of `n` rows, none of them empty.
std::vector<int64_t> random_points(
    int64_t n,
    int64_t parts,
    std::mt19937_64 random) {
  std::vector<int64_t> inner(n - 1);
  for (int64_t i = 0; i < n - 1; ++i) {
    inner[i] = i + 1;
  }
  std::shuffle(inner.begin(), inner.end(), random);
  std::vector<int64_t> points{0, n};
  points.insert(points.end(), inner.begin(), inner.begin() + parts - 1);
  std::sort(points.begin(), points.end());
  return points;
}

/// The fewest blocks, more than one, of which each has enough rows; 1 where there
/// are none.
int64_t blocks_of(int64_t n, int64_t parts) {
  for (int64_t blocks = 2; n / blocks > parts; ++blocks) {
    if (n % blocks == 0) {
      return blocks;
    }
  }
  return 1;
}

/// For every element the rank that has it.
at::Tensor random_owners(
    c10::IntArrayRef sizes,
    int64_t ranks,
    std::mt19937_64& random,
    c10::Device device) {
  auto owners = at::empty(sizes, at::kLong);
  auto* data = owners.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < owners.numel(); ++i) {
    data[i] = static_cast<int64_t>(random() % ranks);
  }
  return owners.to(device);
}

/// What rank's part of a sum is: the value times a power of two, so that every
/// order of adding gives the value exactly.
at::Tensor part_of_sum(
    const Axis& axis,
    const at::Tensor& value,
    std::mt19937_64& random) {
  const int64_t size = axis.size();
  if (value.scalar_type() == at::kBool || !value.is_floating_point()) {
    const auto owners = random_owners(value.sizes(), size, random, value.device());
    auto part = at::where(owners == axis.rank(), value, at::zeros_like(value));
    return part.to(value.scalar_type());
  }
  const int64_t first = static_cast<int64_t>(random() % size);
  const int64_t second = (first + 1) % size;
  static const double pairs[][2] = {{2, -1}, {0.5, 0.5}, {-1, 2}};
  const auto& weights = pairs[random() % 3];
  const auto finite = at::isfinite(value);
  const auto scaled = axis.rank() == first ? value * weights[0]
      : axis.rank() == second              ? value * weights[1]
                                           : at::zeros_like(value);
  return at::where(
      finite, scaled,
      axis.rank() == first ? value : at::zeros_like(value));
}

at::Tensor part_of_extreme(
    const Axis& axis,
    const at::Tensor& value,
    ReduceOp op,
    std::mt19937_64& random) {
  const auto owners = random_owners(value.sizes(), axis.size(), random, value.device());
  at::Tensor other;
  if (op == ReduceOp::kProduct) {
    other = at::ones_like(value);
  } else if (value.is_floating_point()) {
    other = op == ReduceOp::kMax ? value - value.abs() - 1
                                 : value + value.abs() + 1;
    other = at::where(at::isfinite(value), other, value);
  } else {
    // Small integers have no room below.
    other = value;
  }
  return at::where(owners == axis.rank(), value, other);
}

/// Booleans have no sum, and few operators know the large unsigned types.
bool has_sum(at::ScalarType dtype) {
  return dtype != at::kBool && dtype != at::kUInt16 && dtype != at::kUInt32 &&
      dtype != at::kUInt64;
}

/// The part along one axis; `smallest` are the least rows of the processes that
/// share this axis' line.
struct Chosen {
  Placement placement;
  at::Tensor local;
};

/// The part of `value`, as `way` says.
Chosen lay(
    const Axis& axis,
    const at::Tensor& value,
    const Way& way,
    std::mt19937_64& random) {
  if (way.kind == Way::kShard) {
    Cut cut;
    if (way.odd) {
      cut = axis.cut_at(
          random_points(
              value.size(way.dim) / way.blocks, axis.size(), random),
          way.blocks);
      random();
    }
    const auto place = Shard(way.dim, cut);
    return {place, own_rows(axis, value, place).clone()};
  }
  if (way.kind == Way::kPartial) {
    // A stream of its own: how much is drawn depends on local sizes.
    std::mt19937_64 own(random());
    // Every part lies in memory like the value.
    auto local = at::empty_like(value);
    local.copy_(
        way.op == ReduceOp::kSum ? part_of_sum(axis, value, own)
                                 : part_of_extreme(axis, value, way.op, own));
    return {Partial(way.op), local};
  }
  return {Replicate(), value.clone()};
}

Chosen choose(
    const Axis& axis,
    const at::Tensor& value,
    std::vector<int64_t>& smallest,
    std::mt19937_64& random) {
  const auto kind = random() % 20;
  if (kind < 3) {
    return lay(axis, value, {Way::kReplicate}, random);
  }
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < value.dim(); ++d) {
    if (smallest[d] >= axis.size()) {
      dims.push_back(d);
    }
  }
  if (kind >= 7 && !dims.empty()) {
    const int64_t dim = dims[random() % dims.size()];
    const auto way = random();
    const bool odd = way % 3 == 0;
    // Along further axes it depends on the process how many rows there are.
    const int64_t blocks = odd && way / 3 % 3 == 0 && axis.index() == 0
        ? blocks_of(value.size(dim), axis.size())
        : 1;
    auto chosen = lay(
        axis, value, {Way::kShard, dim, odd, ReduceOp::kSum, blocks}, random);
    const auto& cut = chosen.placement.cut();
    int64_t least = value.size(dim);
    for (int64_t rank = 0; rank < axis.size(); ++rank) {
      least = std::min(least, axis.rows(value.size(dim), cut, rank));
    }
    // Other lines of the axis may have cut fewer rows at other points.
    smallest[dim] = cut ? 1 : std::min(least, smallest[dim] / axis.size());
    return chosen;
  }
  // Of complex numbers none is the greatest.
  const auto op = random() % 3 != 0 || value.scalar_type() == at::kBool ||
          value.is_complex()
      ? ReduceOp::kSum
      : static_cast<ReduceOp>(random() % 4);
  if (!has_sum(value.scalar_type())) {
    return lay(axis, value, {Way::kReplicate}, random);
  }
  if (value.is_complex()) {
    return lay(axis, value, {Way::kPartial}, random);
  }
  return lay(axis, value, {Way::kPartial, 0, false, op}, random);
}

at::Tensor place_along(
    const std::vector<Axis*>& axes,
    size_t k,
    const at::Tensor& value,
    std::vector<int64_t>& smallest,
    std::mt19937_64& random,
    std::string& description) {
  if (k == axes.size()) {
    return value;
  }
  auto chosen = choose(*axes[k], value, smallest, random);
  description += chosen.placement.str();
  const auto inner = place_along(
      axes, k + 1, chosen.local, smallest, random, description);
  return make_tensor(
      *axes[k], inner, chosen.placement, value.sizes(), value.strides(),
      /*exact=*/true);
}

} // namespace

at::Tensor place_at_random(
    const DeviceMesh& mesh,
    const at::Tensor& tensor,
    std::mt19937_64& random,
    std::string* description) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    return tensor;
  }
  install();
  const InsideGuard inside;
  std::vector<int64_t> smallest = tensor.sizes().vec();
  std::string text;
  return place_along(
      mesh.axes(), 0, tensor, smallest, random,
      description != nullptr ? *description : text);
}

std::vector<Way> ways(const at::Tensor& tensor, int64_t world) {
  std::vector<Way> all{{Way::kPlain}};
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    return all;
  }
  all.push_back({Way::kReplicate});
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) >= world) {
      all.push_back({Way::kShard, d});
      if (tensor.size(d) > world) {
        all.push_back({Way::kShard, d, /*odd=*/true});
        const int64_t blocks = blocks_of(tensor.size(d), world);
        if (blocks != 1) {
          all.push_back({Way::kShard, d, true, ReduceOp::kSum, blocks});
        }
      }
    }
  }
  if (has_sum(tensor.scalar_type())) {
    all.push_back({Way::kPartial});
  }
  if (tensor.is_floating_point()) {
    all.push_back({Way::kPartial, 0, false, ReduceOp::kMax});
  }
  return all;
}

at::Tensor place(
    const DeviceMesh& mesh,
    const at::Tensor& tensor,
    const Way& way,
    std::mt19937_64& random) {
  if (way.kind == Way::kPlain) {
    return tensor;
  }
  install();
  const InsideGuard inside;
  Axis& axis = *mesh.axes().at(0);
  const auto chosen = lay(axis, tensor, way, random);
  auto placed = make_tensor(
      axis, chosen.local, chosen.placement, tensor.sizes(), tensor.strides(),
      /*exact=*/true);
  // As Accelerator::distribute does: parts are views of the program's memory, with
  // gaps where they are cut in an inner dimension.
  if (way.kind == Way::kShard && random() % 2 == 0) {
    const auto whole = tensor.detach();
    const auto item = static_cast<int64_t>(tensor.itemsize());
    const auto memory = at::empty({0}, tensor.options())
                            .set_(
                                whole.storage(), 0,
                                {static_cast<int64_t>(whole.storage().nbytes()) / item},
                                {1})
                            .clone();
    set_batch(
        placed,
        memory.as_strided(
            tensor.sizes(), tensor.strides(), tensor.storage_offset()));
  }
  return placed;
}

at::Tensor Placer::place(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    return tensor;
  }
  description_ += " " + c10::str(tensor.sizes());
  if (!tensor.is_contiguous()) {
    description_ += "strides" + c10::str(tensor.strides());
  }
  if (draw(6) == 0) {
    description_ += "plain";
    return tensor;
  }
  ++placed_;
  return place_at_random(mesh_, tensor, random_, &description_);
}

} // namespace accel::distributed::test
