#pragma once

#include <accel/data/batch_dealer.h>
#include <accel/data/cursor.h>
#include <accel/data/generators.h>
#include <accel/data/loader_pass.h>
#include <accel/data/place_batch.h>
#include <accel/data/sharding.h>
#include <accel/export.h>
#include <accel/gradient_state.h>

#include <torch/data/dataloader_options.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::data {

/// The passes of one loader over a stream of batches: which batch this process
/// gets next, and how far the program has come. It depends on the batches' type
/// and not on the data set, so that for the usual types it is compiled once, in the
/// library.
///
/// Used by the main thread only.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
class DealtPass : public LoaderPass {
 public:
  /// Reads the next batch of the stream.
  using Fetch = typename BatchDealer<Batch>::Fetch;

  /// `name`: what a resumed run knows the stream by. `has_batch_size`: see the
  /// trait of that name.
  DealtPass(
      const std::string& name,
      const torch::data::DataLoaderOptions& options,
      bool has_batch_size)
      : LoaderPass("dealt " + name, options),
        has_batch_size_(has_batch_size) {}

  /// Whether this process reads the stream.
  bool reads() const {
    return !dispatch_ || sharding_.rank == 0 || sharding_.world == 1;
  }

  /// Samples that the sampler or the data set is asked for at once.
  size_t request_size() const {
    return static_cast<size_t>(
        has_batch_size_ ? options_batch_size_ : batch_size(sharding_));
  }

  /// A pass begins: `reset` sets the stream to its beginning where this process
  /// reads it, then `start` lets the loader begin, then batches that the program
  /// had before, or does not want, are left out. Every process must call it.
  void begin(
      const std::function<void()>& reset,
      const std::function<void()>& start,
      const Fetch& fetch);

  /// This process's next batch; nothing at the end of the pass. Every process
  /// must call it.
  std::optional<Batch> advance(const Fetch& fetch);

  using LoaderPass::batches_of;
  using LoaderPass::end;

  /// See `ResumableLoader`.
  accel::detail::LoaderCursor cursor() const {
    return LoaderPass::cursor(steps_, fingerprint_);
  }
  /// See `ResumableLoader`.
  void resume(accel::detail::LoaderCursor cursor) {
    end();
    resume_at(std::move(cursor));
  }

 private:
  DealingOptions dealing() const;
  void start_stream(
      const std::function<void()>& reset,
      const std::function<void()>& start);
  void leave_out(int64_t steps, const Fetch& fetch);
  void count(const accel::detail::DealtStep& step);

  bool has_batch_size_;

  // Of the current pass.
  bool dispatch_ = true;
  std::optional<BatchDealer<Batch>> dealer_;
  int64_t steps_ = 0;
  uint64_t fingerprint_ = 0;
};

template <typename Batch>
DealingOptions DealtPass<Batch>::dealing() const {
  DealingOptions options;
  options.sharding = sharding_;
  options.dispatch = dispatch_;
  options.batch_size = static_cast<int64_t>(request_size());
  options.joined = has_batch_size_ ? sharding_.batches_in_one() : 1;
  options.looks_ahead =
      (sharding_.world > 1 && !sharding_.match_single_device) ||
      GradientState::get().num_steps > 1;
  options.generator_in_step = sharding_.match_single_device && main_thread_;
  options.device = accel::detail::current_device();
  options.drop_last = drop_last_;
  return options;
}

template <typename Batch>
void DealtPass<Batch>::begin(
    const std::function<void()>& reset,
    const std::function<void()>& start,
    const Fetch& fetch) {
  sharding_ = accel::detail::sharding_options();
  dispatch_ =
      sharding_.dispatch_batches.value_or(!sharding_.load_whole_batches);
  steps_ = 0;
  fingerprint_ = 0;
  state_->end_pass();
  dealer_.emplace(dealing());
  in_pass_ = true;
  GradientState::get().enter(state_);

  if (resume_) {
    const auto cursor = *std::exchange(resume_, std::nullopt);
    const accel::detail::GeneratorInState generator(cursor.generator);
    start_stream(reset, start);
    leave_out(cursor.batches, fetch);
    if (steps_ != cursor.batches || fingerprint_ != cursor.fingerprint) {
      end();
      accel::detail::throw_other_batches(cursor.sampler, cursor.batches);
    }
  } else {
    if (sharding_.world > 1 && sharding_.match_single_device) {
      accel::detail::synchronize_generators();
    }
    start_stream(reset, start);
  }
  // As in `SamplerPass::begin`: from the beginning, also of a pass that goes on.
  leave_out(std::exchange(skip_, 0), fetch);
}

template <typename Batch>
void DealtPass<Batch>::start_stream(
    const std::function<void()>& reset,
    const std::function<void()>& start) {
  {
    std::optional<accel::detail::MainProcessGenerator> generator;
    if (sharding_.world > 1 && !sharding_.match_single_device && !dispatch_) {
      generator.emplace(); // the streams are to be equal
    }
    pass_generator_ = accel::detail::generator_state();
    if (reads()) {
      reset();
    }
  }
  if (sharding_.world > 1 && sharding_.match_single_device && dispatch_) {
    // What process 0 has drawn for all.
    accel::detail::follow_main_process_generator();
  }
  start();
}

template <typename Batch>
std::optional<Batch> DealtPass<Batch>::advance(const Fetch& fetch) {
  auto step = dealer_->next(fetch);
  if (!step.about.batch) {
    end();
    return std::nullopt;
  }
  count(step.about);
  GradientState::get().hand_out(state_);
  state_->end_of_dataloader = step.about.last;
  state_->remainder = step.about.remainder;
  if (step.batch) {
    watch_batch(*state_, *step.batch);
  }
  return std::move(step.batch);
}

template <typename Batch>
void DealtPass<Batch>::leave_out(int64_t steps, const Fetch& fetch) {
  while (steps_ < steps) {
    const auto step = dealer_->next(fetch, /*deliver=*/false);
    if (!step.about.batch) {
      return;
    }
    count(step.about);
  }
}

template <typename Batch>
void DealtPass<Batch>::count(const accel::detail::DealtStep& step) {
  fingerprint_ += accel::detail::mix_fingerprint(
      step.fingerprint, static_cast<uint64_t>(steps_));
  ++steps_;
}

// In the library, as `BatchDealer` is.
extern template class ACCEL_API DealtPass<torch::data::Example<>>;
extern template class ACCEL_API DealtPass<std::vector<torch::data::Example<>>>;

} // namespace accel::data
