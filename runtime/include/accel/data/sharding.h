#pragma once

#include <accel/export.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace accel::detail {

/// Which of `n` rows a process holds, as distributed tensors are cut: contiguous
/// parts in rank order, the first ones one row larger.
struct RowRange {
  int64_t offset;
  int64_t rows;

  static RowRange of(int64_t n, int64_t rank, int64_t world) {
    const int64_t quotient = n / world;
    const int64_t extra = n % world;
    return {
        rank * quotient + (rank < extra ? rank : extra),
        quotient + (rank < extra ? 1 : 0)};
  }
};

} // namespace accel::detail

namespace accel::data {

/// How a pass over a data set is shared between the processes. The same on
/// every process but for `rank`.
struct ShardingOptions {
  /// This process, from 0.
  int64_t rank = 0;
  /// How many processes there are.
  int64_t world = 1;
  /// Every batch is a distributed tensor, of which a process has its rows; only
  /// `split_batches`, `dispatch_batches` and `load_whole_batches` below are looked
  /// at.
  bool match_single_device = false;
  /// A batch of the sampler is the global batch, each process gets
  /// 1 / `world` of it; otherwise each process gets every `world`-th batch, or,
  /// in `match_single_device`, the batches have `data_groups()` times as many
  /// samples.
  bool split_batches = false;
  /// The last batches are filled up from the beginning, so that every process
  /// gets the same number of batches of the same size.
  bool even_batches = true;
  /// Process 0 reads for all. Empty: where the data set decides itself what
  /// comes next, and not where a sampler does.
  std::optional<bool> dispatch_batches;
  /// (With `match_single_device`.) Every process loads the samples of all.
  bool load_whole_batches = false;
  /// (Without `match_single_device` and without `even_batches`.) Processes that
  /// get no part of the last batches go on with one that does not count.
  bool join_uneven = false;
  /// (With `match_single_device`.) An axis of the processes' mesh
  /// (`ParallelismConfig`).
  struct Axis {
    /// Processes along it.
    int64_t size = 1;
    /// Each process along it has rows of its own; otherwise all have the same.
    bool of_data = true;
    /// The processes along it share the positions of the rows' sequences.
    bool of_positions = false;
  };
  /// Its axes, whose sizes multiply to `world`; empty: one of data.
  std::vector<Axis> mesh;

  /// Groups of processes that have rows of their own.
  int64_t data_groups() const {
    int64_t groups = mesh.empty() ? world : 1;
    for (const Axis& axis : mesh) {
      groups *= axis.of_data ? axis.size : 1;
    }
    return groups;
  }

  /// The rows that process `process` holds of a batch of `n`, as distributed
  /// tensors are cut: along one axis after the other, but for those that have more
  /// processes than there are rows. All rows where nothing is cut.
  accel::detail::RowRange rows(int64_t n, int64_t process) const {
    if (mesh.empty()) {
      return n < world ? accel::detail::RowRange{0, n}
                       : accel::detail::RowRange::of(n, process, world);
    }
    accel::detail::RowRange range{0, n};
    int64_t behind = world;
    for (const Axis& axis : mesh) {
      behind /= axis.size;
      if (axis.of_data && range.rows >= axis.size) {
        const auto inner = accel::detail::RowRange::of(
            range.rows, process / behind % axis.size, axis.size);
        range = {range.offset + inner.offset, inner.rows};
      }
    }
    return range;
  }

  /// Whether the tensors of a batch of `n` rows are cut.
  bool cuts(int64_t n) const {
    for (const Axis& axis : mesh) {
      if (axis.of_positions) {
        return true;
      }
    }
    return rows(n, 0).rows < n;
  }

  /// How many batch sizes of the loader's options make a batch that the sampler
  /// or the data set is asked for.
  int64_t batches_in_one() const {
    return match_single_device && !split_batches ? data_groups() : 1;
  }
};

/// Deals the batches of a sampler out to the processes as Accelerate's
/// `BatchSamplerShard` does. Each process runs the same sampler and keeps its
/// own part; nothing is exchanged.
///
/// `Request` is a list of indices (`std::vector<size_t>`): it has `begin`,
/// `end`, `size` and can be made from two iterators.
template <typename Request>
class BatchSamplerShard {
 public:
  /// `batch_size` and `drop_last` are the data loader's. Throws `c10::Error`
  /// where `split_batches` cannot divide `batch_size` by the number of
  /// processes.
  BatchSamplerShard(
      const ShardingOptions& sharding,
      int64_t batch_size,
      bool drop_last)
      : sharding_(sharding), batch_size_(batch_size), drop_last_(drop_last) {
    TORCH_CHECK(
        !sharding.split_batches || batch_size % sharding.world == 0,
        "split_batches(true) needs a batch size that the number of processes "
        "divides, but the data loader's batch size is ",
        batch_size,
        " and there are ",
        sharding.world,
        " processes. Choose another batch size or number of processes, or "
        "leave split_batches off.");
  }

  /// This process's next batch, or nothing at the end of the pass. `sampler()`
  /// gives the sampler's next batch as `std::optional<Request>`, without the
  /// short last one where `drop_last` is set; it is not called again once it
  /// has given nothing.
  template <typename Source>
  std::optional<Request> next(Source&& sampler) {
    while (ready_.empty() && !exhausted_) {
      if (std::optional<Request> batch = sampler()) {
        samples_ += static_cast<int64_t>(batch->size());
        sharding_.split_batches ? split(*batch) : deal(*batch);
      } else {
        exhausted_ = true;
        if (!drop_last_ && !first_.empty()) {
          sharding_.split_batches ? finish_split() : finish_deal();
        }
      }
    }
    if (ready_.empty()) {
      return std::nullopt;
    }
    auto ready = std::move(ready_.front());
    ready_.pop_front();
    ghost_ = ready.ghost;
    uneven_ = ready.uneven;
    return std::move(ready.batch);
  }

  /// The batch that `next` gave last does not count: this process has run out
  /// (`join_uneven`).
  bool ghost() const {
    return ghost_;
  }
  /// In the step of that batch some processes have fewer samples than others
  /// (`join_uneven`).
  bool uneven() const {
    return uneven_;
  }

  /// Samples that the sampler has given so far, those of all processes.
  int64_t samples() const {
    return samples_;
  }

  /// How many batches this process gets out of a pass over `samples` samples.
  static int64_t batches(
      int64_t samples,
      const ShardingOptions& sharding,
      int64_t batch_size,
      bool drop_last) {
    const int64_t world = sharding.world;
    const int64_t rank = sharding.rank;
    const int64_t full = samples / batch_size;
    const int64_t rest = samples % batch_size;
    if (sharding.split_batches) {
      const bool has_part =
          sharding.even_batches || rest > batch_size / world * rank;
      return full + (rest > 0 && !drop_last && has_part ? 1 : 0);
    }
    const int64_t batches = full + (rest > 0 && !drop_last ? 1 : 0);
    if (batches % world == 0 || drop_last) {
      return batches / world;
    }
    const bool has_one = sharding.even_batches || rank < batches % world;
    return batches / world + (has_one ? 1 : 0);
  }

 private:
  using Index = typename Request::value_type;
  using Indices = std::vector<Index>;

  bool full(const Indices& batch) const {
    return static_cast<int64_t>(batch.size()) == batch_size_;
  }

  void emit(const Indices& source, int64_t begin, int64_t end) {
    const auto size = static_cast<int64_t>(source.size());
    ready_.push_back(
        {Request(
             source.begin() + std::min(begin, size),
             source.begin() + std::min(end, size)),
         /*ghost=*/false,
         /*uneven=*/exhausted_ && sharding_.join_uneven});
  }

  /// Two samples, as code that was written for larger batches may not work on
  /// one.
  void emit_ghost() {
    if (sharding_.join_uneven) {
      emit(first_, 0, 2);
      ready_.back().ghost = true;
    }
  }

  /// Repeats `first_` until it has `size` indices.
  void grow_first(int64_t size) {
    while (static_cast<int64_t>(first_.size()) < size) {
      const Indices once = first_;
      first_.insert(first_.end(), once.begin(), once.end());
    }
  }

  // Every world-th batch. A round is handed out when its last batch is known
  // to be full.
  void deal(const Request& batch) {
    last_.assign(batch.begin(), batch.end());
    if (!drop_last_ && number_ < sharding_.world) {
      first_.insert(first_.end(), last_.begin(), last_.end());
    }
    const int64_t turn = number_++ % sharding_.world;
    if (turn == sharding_.rank) {
      held_ = last_;
    }
    if (turn == sharding_.world - 1 && full(last_)) {
      emit(held_, 0, batch_size_);
      held_.clear();
    }
  }

  void finish_deal() {
    if (!sharding_.even_batches) {
      if (!held_.empty()) {
        emit(held_, 0, batch_size_);
      } else if (number_ % sharding_.world != 0) {
        emit_ghost();
      }
      return;
    }
    if (full(held_)) {
      emit(held_, 0, batch_size_);
    }
    grow_first(sharding_.world * batch_size_);
    int64_t number = number_ - 1;
    if (full(last_)) {
      last_.clear();
      ++number;
    }
    // The filler goes on from process to process, so that no two of them get
    // the same samples while there are enough.
    int64_t filled = 0;
    while (number % sharding_.world != 0 || !last_.empty()) {
      const int64_t missing =
          batch_size_ - static_cast<int64_t>(last_.size());
      last_.insert(
          last_.end(),
          first_.begin() + filled,
          first_.begin() + filled + missing);
      if (number % sharding_.world == sharding_.rank) {
        emit(last_, 0, batch_size_);
      }
      filled += missing;
      last_.clear();
      ++number;
    }
  }

  // A part of every batch.
  void split(const Request& batch) {
    last_.assign(batch.begin(), batch.end());
    if (first_.empty()) {
      first_ = last_;
    }
    if (full(last_)) {
      emit_part(last_);
    }
  }

  void finish_split() {
    if (full(last_)) {
      return;
    }
    if (sharding_.even_batches) {
      grow_first(batch_size_);
      last_.insert(last_.end(), first_.begin(), first_.end());
      emit_part(last_);
    } else if (
        static_cast<int64_t>(last_.size()) >
        batch_size_ / sharding_.world * sharding_.rank) {
      emit_part(last_);
    } else {
      emit_ghost();
    }
  }

  void emit_part(const Indices& batch) {
    const int64_t part = batch_size_ / sharding_.world;
    emit(batch, part * sharding_.rank, part * (sharding_.rank + 1));
  }

  struct Ready {
    Request batch;
    bool ghost;
    bool uneven;
  };

  ShardingOptions sharding_;
  int64_t batch_size_;
  bool drop_last_;

  std::deque<Ready> ready_;
  bool ghost_ = false;
  bool uneven_ = false;
  bool exhausted_ = false;
  int64_t samples_ = 0;
  int64_t number_ = 0;
  /// What the last batches are filled from.
  Indices first_;
  Indices held_;
  Indices last_;
};

} // namespace accel::data

namespace accel::detail {

/// What the `Accelerator` says; one process where there is none yet.
ACCEL_API data::ShardingOptions sharding_options();

} // namespace accel::detail
