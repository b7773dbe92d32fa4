#pragma once

#include <accel/export.h>

#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace accel::distributed {

/// How the parts of a `Partial` tensor become its value.
enum class ReduceOp : uint8_t { kSum, kMax, kMin, kProduct };

/// The rows at which a dimension is cut: one point more than there are
/// processes on the axis, from 0 to the size, never falling.
///
/// Or the dimension is made of several blocks of equal size, and each of them is
/// cut at these points: the rows of `[time, batch, features]`, cut along the
/// batch, in a view of sizes `[time * batch, features]`. Only views make such
/// cuts; an operator whose rule does not know them gets contiguous rows.
struct CutPoints : c10::intrusive_ptr_target {
  explicit CutPoints(std::vector<int64_t> p, int64_t n = 1)
      : points(std::move(p)), blocks(n) {}
  /// Where the parts begin; the last one is the size.
  const std::vector<int64_t> points;
  /// How many blocks are cut like this, one behind the other.
  const int64_t blocks;
};
/// Null for the usual cut: parts of equal size, the first ones one row larger.
using Cut = c10::intrusive_ptr<CutPoints>;

/// Where a tensor lies along one axis of a mesh; PyTorch's `Placement`. Made by
/// `Replicate`, `Shard` and `Partial`. A small value, compared by `==`.
class ACCEL_API Placement {
 public:
  /// Replicate.
  Placement() = default;

  /// Whether every process has the whole tensor.
  bool is_replicate() const {
    return kind_ == Kind::kReplicate;
  }
  /// Whether the tensor is cut along some dimension.
  bool is_shard() const {
    return kind_ == Kind::kShard;
  }
  /// Whether the tensor is cut along `dim`, a dimension from 0.
  bool is_shard(int64_t dim) const {
    return kind_ == Kind::kShard && dim_ == dim;
  }
  /// Whether each process has a term, which `reduce_op` combines.
  bool is_partial() const {
    return kind_ == Kind::kPartial;
  }
  /// A part of a sum: what linear operators may work on.
  bool is_sum() const {
    return kind_ == Kind::kPartial && op_ == ReduceOp::kSum;
  }

  /// The dimension that is cut, counted from the front. Of a shard only.
  int64_t dim() const {
    return dim_;
  }
  /// Of a partial tensor only.
  ReduceOp reduce_op() const {
    return op_;
  }
  /// Where it is cut, of a shard; null for the usual cut.
  const Cut& cut() const {
    return cut_;
  }
  /// Whether the rows of a process are no contiguous range: a shard whose blocks
  /// are cut.
  bool in_blocks() const {
    return cut_ && cut_->blocks != 1;
  }

  /// The same cut of another dimension.
  Placement with_dim(int64_t dim) const {
    Placement other = *this;
    other.dim_ = static_cast<int32_t>(dim);
    return other;
  }

  bool operator==(const Placement& other) const {
    return kind_ == other.kind_ && dim_ == other.dim_ && op_ == other.op_ &&
        (cut_ == other.cut_ || same_points(other));
  }
  bool operator!=(const Placement& other) const {
    return !(*this == other);
  }

  /// "R", "S(0)", "S(0)*" with a cut of its own, "S(0)*5" where 5 blocks are cut,
  /// "P", "P(max)".
  std::string str() const;

 private:
  friend Placement Replicate();
  friend Placement Shard(int64_t dim, Cut cut);
  friend Placement Partial(ReduceOp op);
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };

  bool same_points(const Placement& other) const {
    return cut_ && other.cut_ && cut_->points == other.cut_->points &&
        cut_->blocks == other.cut_->blocks;
  }

  Kind kind_ = Kind::kReplicate;
  ReduceOp op_ = ReduceOp::kSum;
  int32_t dim_ = 0;
  Cut cut_;
};

/// Every process holds the whole tensor.
inline Placement Replicate() {
  return {};
}

/// Every process holds a contiguous range of dimension `dim` (not negative),
/// in the order of their ranks; of each block where the cut has several.
inline Placement Shard(int64_t dim, Cut cut = {}) {
  Placement p;
  p.kind_ = Placement::Kind::kShard;
  p.dim_ = static_cast<int32_t>(dim);
  p.cut_ = std::move(cut);
  return p;
}

/// Every process holds a tensor of the whole shape; the value is what `op`
/// makes of them.
inline Placement Partial(ReduceOp op = ReduceOp::kSum) {
  Placement p;
  p.kind_ = Placement::Kind::kPartial;
  p.op_ = op;
  return p;
}

ACCEL_API std::ostream& operator<<(std::ostream& out, const Placement& placement);

} // namespace accel::distributed
