#pragma once

#include <accel/data/cursor.h>
#include <accel/data/sharding.h>
#include <accel/export.h>
#include <accel/gradient_state.h>

#include <ATen/core/Tensor.h>
#include <torch/data/dataloader_options.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace accel::data {

/// What the passes of all loaders have: how they are shared, whether one goes on,
/// and where the next one begins. `SamplerPass` and `DealtPass` say which batches a
/// process gets.
///
/// For the library itself: a program has no need to name it, and it may change.
class ACCEL_API LoaderPass {
 public:
  /// Where the loader stands.
  DataLoaderState& state() {
    return *state_;
  }
  /// How the pass is shared.
  const ShardingOptions& sharding() const {
    return sharding_;
  }

  /// See `ResumableLoader`. Throws `c10::Error` for a negative number.
  void skip_first_batches(int64_t batches);

 protected:
  /// `name`: what a resumed run knows the loader by. Throws `c10::Error` for a batch
  /// size of 0, by which a pass would divide.
  LoaderPass(std::string name, const torch::data::DataLoaderOptions& options);
  ~LoaderPass() = default;

  /// The pass is over, or was left.
  void end();

  /// Those of a pass have been handed out, and their fingerprint is the sum of
  /// theirs.
  accel::detail::LoaderCursor cursor(
      int64_t batches,
      uint64_t fingerprint) const;
  /// The next pass goes on where `cursor` was; the one that goes on has ended.
  void resume_at(accel::detail::LoaderCursor cursor);

  /// A batch of this fingerprint is handed out: in `match_single_device` the next
  /// backward compares whether it is the same on all processes.
  void compare(uint64_t fingerprint) const;

  /// How many batches this process gets in a whole pass over `samples` samples.
  /// `evened`: the last ones are filled up whatever `even_batches` says.
  int64_t batches_of(int64_t samples, bool evened) const;

  /// Of a batch that the sampler or the data set is asked for.
  int64_t batch_size(const ShardingOptions& sharding) const {
    return options_batch_size_ * sharding.batches_in_one();
  }

  std::string name_;
  int64_t options_batch_size_;
  bool drop_last_;
  bool main_thread_;
  std::shared_ptr<DataLoaderState> state_ =
      std::make_shared<DataLoaderState>();

  // Of the current pass.
  ShardingOptions sharding_;
  bool in_pass_ = false;
  /// The default generator as the sampler or the stream found it.
  at::Tensor pass_generator_;

  // Of the next pass.
  std::optional<accel::detail::LoaderCursor> resume_;
  int64_t skip_ = 0;
};

} // namespace accel::data
