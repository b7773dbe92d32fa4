#pragma once

#include <accel/data/sharding.h>

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace accel::data {

/// Deals the samples of a stream out to the processes as Accelerate's
/// `IterableDatasetShard` does. Every process reads the whole stream, in the
/// same order, and keeps its own part; nothing is exchanged.
///
/// Samples are taken from the stream in groups of a batch for each process (of
/// one batch with `split_batches`), and each process gets a contiguous part of
/// every group. The last group is filled up from the first one; `even_batches`
/// is not looked at.
template <typename Sample>
class IterableDatasetShard {
 public:
  /// `batch_size` and `drop_last` are those with which the samples are put into
  /// batches afterwards. Throws `c10::Error` where `split_batches` cannot
  /// divide `batch_size` by the number of processes.
  IterableDatasetShard(
      const ShardingOptions& sharding,
      int64_t batch_size,
      bool drop_last)
      : group_size_(
            sharding.split_batches ? batch_size : batch_size * sharding.world),
        begin_(group_size_ / sharding.world * sharding.rank),
        end_(group_size_ / sharding.world * (sharding.rank + 1)),
        drop_last_(drop_last) {
    TORCH_CHECK(
        group_size_ % sharding.world == 0,
        "split_batches(true) needs a batch size that the number of processes "
        "divides, but the batch size is ",
        batch_size,
        " and there are ",
        sharding.world,
        " processes. Choose another batch size or number of processes, or "
        "leave split_batches off.");
  }

  /// This process's next sample, or nothing at the end. `stream()` gives the
  /// stream's next sample as `std::optional<Sample>`; it is not called again
  /// once it has given nothing.
  template <typename Source>
  std::optional<Sample> next(Source&& stream) {
    if (position_ == end_) {
      if (exhausted_ || !read_group(stream)) {
        return std::nullopt;
      }
      position_ = begin_;
    }
    return group_[position_++];
  }

 private:
  template <typename Source>
  bool read_group(Source& stream) {
    group_.clear();
    while (static_cast<int64_t>(group_.size()) < group_size_) {
      std::optional<Sample> sample = stream();
      if (!sample) {
        exhausted_ = true;
        return complete_group();
      }
      group_.push_back(std::move(*sample));
    }
    if (first_.empty() && !drop_last_) {
      first_ = group_;
    }
    return true;
  }

  bool complete_group() {
    if (drop_last_ || group_.empty()) {
      group_.clear();
      return false;
    }
    if (first_.empty()) {
      first_ = group_;
    }
    for (size_t next = 0; static_cast<int64_t>(group_.size()) < group_size_;
         ++next) {
      group_.push_back(first_[next % first_.size()]);
    }
    return true;
  }

  int64_t group_size_;
  int64_t begin_;
  int64_t end_;
  bool drop_last_;
  bool exhausted_ = false;
  /// In the group; at the end of the process's part before the first one.
  int64_t position_ = end_;
  std::vector<Sample> group_;
  std::vector<Sample> first_;
};

} // namespace accel::data
