#pragma once

#include <accel/data/cursor.h>
#include <accel/data/place_batch.h>
#include <accel/data/row_fetching_dataset.h>
#include <accel/data/sampler_pass.h>

#include <torch/data/dataloader/stateless.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace accel::data {

/// A `StatelessDataLoader` that hands this process its part of the work. Made
/// by `make_data_loader`, which documents it; seen by the program as its base.
///
/// The base fetches and prefetches; `SamplerPass` decides what. The base's own
/// sampler is never used: the pass's is. Each program compiles this class for
/// each of its data sets: what needs no data set belongs in `SamplerPass`.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Dataset, typename Sampler>
class ShardedDataLoader final
    : public torch::data::StatelessDataLoader<Dataset, Sampler>,
      public accel::detail::ResumableLoader {
  using Base = torch::data::StatelessDataLoader<Dataset, Sampler>;
  using Root = typename Base::super;
  using Request = typename Base::BatchRequestType;
  using Result = typename Root::Result;
  using Sequencer = torch::data::detail::sequencers::Sequencer<Result>;

 public:
  /// `size`: the data set's, where it has one.
  ShardedDataLoader(
      Dataset dataset,
      Sampler sampler,
      torch::data::DataLoaderOptions options,
      std::optional<size_t> size)
      : Base(std::move(dataset), sampler, options),
        pass_(std::move(sampler), options, size, loads_by_rows) {
    if constexpr (can_derive_from<Dataset>::value) {
      if (this->main_thread_dataset_) {
        this->main_thread_dataset_ =
            std::make_unique<RowFetchingDataset<Dataset, Request>>(
                std::move(*this->main_thread_dataset_), pass_.plan());
      }
    }
  }

  /// How far this pass is, for a checkpoint.
  accel::detail::LoaderCursor cursor() const override {
    return pass_.cursor();
  }

  /// The next pass goes on where the cursor was.
  void resume(accel::detail::LoaderCursor cursor) override {
    pass_.resume(std::move(cursor));
  }

  /// The next pass leaves these batches out. Throws `c10::Error` for a negative
  /// number.
  void skip_first_batches(int64_t batches) override {
    pass_.skip_first_batches(batches);
  }

  /// Ends the pass.
  void leave() override {
    pass_.end();
  }

  /// Of this process, in a whole pass.
  std::optional<int64_t> batches() const override {
    return pass_.batches();
  }

 private:
  /// Passes the workers' results on and sees which batch the program gets.
  class Handover final : public Sequencer {
   public:
    using typename Sequencer::ResultProducer;

    Handover(std::unique_ptr<Sequencer> inner, SamplerPass<Sampler>& pass)
        : inner_(std::move(inner)), pass_(pass) {}

    std::optional<Result> next(ResultProducer next_result) override {
      auto result = inner_->next(std::move(next_result));
      if (!result) {
        pass_.end();
      } else if (!result->exception) {
        // What a worker has loaded becomes distributed on the thread that
        // computes.
        const auto placement = pass_.placement(result->sequence_number);
        if (placement.rows > 0 && result->batch) {
          result->batch = place_batch(
              std::move(*result->batch), placement.rows, placement.by_rows);
        }
        pass_.hand_out(result->sequence_number);
        if (result->batch) {
          watch_batch(pass_.state(), *result->batch);
        }
      }
      return result;
    }

   private:
    std::unique_ptr<Sequencer> inner_;
    SamplerPass<Sampler>& pass_;
  };

  // A pass begins: called by begin().
  void reset() override {
    pass_.begin();
    Root::reset();
    if (this->options_.workers > 0) {
      watch_results();
    }
  }

  std::optional<Request> get_batch_request() override {
    return pass_.next();
  }

  // The pass's results come in the order of the requests wherever other
  // processes have to do the same step at the same time.
  void watch_results() {
    using torch::data::detail::sequencers::OrderedSequencer;
    auto inner = std::move(this->sequencer_);
    if (pass_.sharding().world > 1) {
      inner = std::make_unique<OrderedSequencer<Result>>(
          this->options_.max_jobs);
    }
    this->sequencer_ = std::make_unique<Handover>(std::move(inner), pass_);
  }

  static constexpr bool loads_by_rows = loads_rows<Dataset>::value &&
      has_tensor_rows<typename Dataset::BatchType>::value;

  SamplerPass<Sampler> pass_;
};

} // namespace accel::data
