#pragma once

#include <accel/distributed/device_mesh.h>
#include <accel/distributed/placement.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// Places a plain tensor, which all ranks have alike, at random on a mesh:
/// replicated, cut in any dimension (as usual, at odd points or in blocks), and
/// as parts of a sum, a maximum, a minimum or a product. Equal states of `random`
/// give the same places on every rank. Copies the values; tensors that are not
/// strided stay as they are.
///
/// The parts of a partial tensor make up its value exactly, bit by bit, but for
/// none of them being the value.
at::Tensor place_at_random(
    const DeviceMesh& mesh,
    const at::Tensor& tensor,
    std::mt19937_64& random,
    std::string* description = nullptr);

/// One way for a tensor to lie on a mesh of one axis.
struct Way {
  enum Kind { kPlain, kReplicate, kShard, kPartial };
  Kind kind = kPlain;
  /// Of a shard.
  int64_t dim = 0;
  /// Of a shard: cut at random points, not as usual.
  bool odd = false;
  /// Of a partial tensor.
  ReduceOp op = ReduceOp::kSum;
  /// Of a shard: more than one, each of which is cut at the same random points.
  int64_t blocks = 1;
};

/// All ways in which a tensor can lie on `world` ranks: plain, replicated, cut in
/// every dimension that has enough entries, as usual, at odd points and in blocks,
/// and as parts of a sum and of a maximum.
std::vector<Way> ways(const at::Tensor& tensor, int64_t world);

/// A plain tensor, which all ranks have alike, in one of its `ways`. Equal states
/// of `random` give the same points and parts on every rank.
at::Tensor place(
    const DeviceMesh& mesh,
    const at::Tensor& tensor,
    const Way& way,
    std::mt19937_64& random);

/// The same for the arguments of a call, some of which stay plain; remembers
/// what it has done.
class Placer {
 public:
  Placer(const DeviceMesh& mesh, uint64_t seed) : mesh_(mesh), random_(seed) {}

  at::Tensor place(const at::Tensor& tensor);

  /// How many tensors have become distributed.
  int64_t placed() const {
    return placed_;
  }
  /// "[3, 5]S(0)* [5]plain", in the order of the calls.
  const std::string& description() const {
    return description_;
  }
  /// A number below `n`, the same on all ranks.
  uint64_t draw(uint64_t n) {
    return random_() % n;
  }

 private:
  const DeviceMesh& mesh_;
  std::mt19937_64 random_;
  int64_t placed_ = 0;
  std::string description_;
};

} // namespace accel::distributed::test
