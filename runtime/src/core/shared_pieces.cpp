#include "core/shared_collectives.h"

#include <ATen/Dispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <vector>

// Messages of many tensors, which lie where they lie: they are copied from
// there into the shared memory, and from it to where they go.

namespace accel::detail {
namespace {

/// Goes once through pieces as if they lay one behind the other.
class PieceCursor {
 public:
  /// How many bytes each has; `n` of them, which stay.
  PieceCursor(const int64_t* bytes, size_t n) : bytes_(bytes), n_(n) {}

  /// Calls `f(piece, begin, count, offset)` for the parts of the next `count`
  /// bytes, as far as there are any: byte `offset` of these is byte `begin` of
  /// the piece.
  template <typename F>
  void next(int64_t count, F&& f) {
    for (int64_t done = 0; done < count && piece_ < n_;) {
      const int64_t here = std::min(count - done, bytes_[piece_] - at_);
      if (here > 0) {
        f(piece_, at_, here, done);
      }
      done += here;
      at_ += here;
      if (at_ == bytes_[piece_]) {
        ++piece_;
        at_ = 0;
      }
    }
  }

 private:
  const int64_t* bytes_;
  size_t n_;
  size_t piece_ = 0;
  int64_t at_ = 0;
};

const char* memory_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

template <typename T>
void add(T* out, const T* a, const T* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
}

} // namespace

void SharedCollectives::gather_pieces(
    const GatheredPieces& gathered, const Operation& operation) {
  const size_t n = gathered.pieces.size();
  auto* whole = static_cast<char*>(gathered.whole.mutable_data_ptr());
  std::vector<PieceCursor> cursors;
  int64_t longest = 0;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const int64_t* counts = gathered.counts.data() + rank * n;
    cursors.emplace_back(counts, n);
    int64_t all = 0;
    for (size_t k = 0; k < n; ++k) {
      all += counts[k];
      if (rank == rank_ && counts[k] > 0) {
        std::memcpy(
            whole + gathered.begins[rank * n + k],
            memory_of(gathered.pieces[k]),
            static_cast<size_t>(counts[k]));
      }
    }
    longest = std::max(longest, all);
  }
  if (longest == 0) {
    compare(operation);
    return;
  }
  for (int64_t begin = 0; begin < longest; begin += chunk_) {
    cursors[rank_].next(
        chunk_, [&](size_t k, int64_t at, int64_t count, int64_t offset) {
          std::memcpy(
              slot(rank_) + offset,
              memory_of(gathered.pieces[k]) + at,
              static_cast<size_t>(count));
        });
    meet_for(operation);
    for (int64_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        continue;
      }
      cursors[rank].next(
          chunk_, [&](size_t k, int64_t at, int64_t count, int64_t offset) {
            std::memcpy(
                whole + gathered.begins[rank * n + k] + at,
                slot(rank) + offset,
                static_cast<size_t>(count));
          });
    }
    ++turn_;
  }
}

void SharedCollectives::sum_pieces(
    const SummedPieces& summed, const Operation& operation) {
  const size_t n = summed.pieces.size();
  const auto width = static_cast<int64_t>(summed.pieces[0].element_size());
  std::vector<int64_t> bytes;
  for (const int64_t count : summed.counts) {
    bytes.push_back(count * width);
  }
  std::vector<PieceCursor> cursors;
  int64_t longest = 0;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const auto* its = bytes.data() + rank * n;
    cursors.emplace_back(its, n);
    int64_t all = 0;
    for (size_t k = 0; k < n; ++k) {
      all += its[k];
    }
    longest = std::max(longest, all);
  }
  if (longest == 0) {
    compare(operation);
    return;
  }
  // A slot has room for each of the others, so that all add at the same time.
  const int64_t room = chunk_ / size_ / 64 * 64;
  std::vector<const char*> from(static_cast<size_t>(size_));
  for (int64_t begin = 0; begin < longest; begin += room) {
    for (int64_t to = 0; to < size_; ++to) {
      if (to == rank_) {
        continue;
      }
      char* const its = slot(rank_) + to * room;
      cursors[to].next(
          room, [&](size_t k, int64_t at, int64_t count, int64_t offset) {
            std::memcpy(
                its + offset,
                memory_of(summed.pieces[k]) +
                    summed.begins[to * n + k] * width + at,
                static_cast<size_t>(count));
          });
    }
    meet_for(operation);
    cursors[rank_].next(
        room, [&](size_t k, int64_t at, int64_t count, int64_t offset) {
          for (int64_t rank = 0; rank < size_; ++rank) {
            from[rank] = rank == rank_
                             ? memory_of(summed.pieces[k]) +
                                   summed.begins[rank * n + k] * width + at
                             : slot(rank) + rank_ * room + offset;
          }
          AT_DISPATCH_FLOATING_TYPES_AND2(
              at::kHalf,
              at::kBFloat16,
              summed.pieces[k].scalar_type(),
              "sum_pieces",
              [&] {
                auto* out = reinterpret_cast<scalar_t*>(
                    static_cast<char*>(summed.sums[k].mutable_data_ptr()) + at);
                const auto its = [&](int64_t rank) {
                  return reinterpret_cast<const scalar_t*>(from[rank]);
                };
                add(out, its(0), its(1), count / width);
                for (int64_t rank = 2; rank < size_; ++rank) {
                  add(out, out, its(rank), count / width);
                }
              });
        });
    ++turn_;
  }
}

} // namespace accel::detail
