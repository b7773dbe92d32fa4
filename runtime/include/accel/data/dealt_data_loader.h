#pragma once

#include <accel/data/cursor.h>
#include <accel/data/dealt_pass.h>
#include <accel/data/sampler_pass.h>
#include <accel/detail/phase.h>

#include <torch/data/datasets/chunk.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/shared.h>
#include <torch/data/dataloader/stateful.h>
#include <torch/data/dataloader/stateless.h>
#include <torch/data/worker_exception.h>

#include <c10/util/Type.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel::data {

/// The data set of a loader without workers: gives what was put down for it,
/// else what the data set itself gives.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Dataset, typename Batch>
class DeliveringDataset final : public Dataset {
 public:
  DeliveringDataset(
      Dataset&& dataset,
      std::shared_ptr<std::optional<Batch>> delivery)
      : Dataset(std::move(dataset)), delivery_(std::move(delivery)) {}

  /// Overrides `Dataset::get_batch`: the batch that was delivered.
  typename Dataset::BatchType get_batch(
      typename Dataset::BatchRequestType request) {
    if (auto batch = std::exchange(*delivery_, std::nullopt)) {
      return std::move(*batch);
    }
    const accel::detail::PhaseScope loading(accel::detail::Phase::kLoading);
    return Dataset::get_batch(std::move(request));
  }

 private:
  std::shared_ptr<std::optional<Batch>> delivery_;
};

/// Data sets that give batches of a size of their own and take requests for no
/// other. Specialise it to `std::true_type` for one of yours.
template <typename Dataset>
struct has_batch_size : std::false_type {};
template <typename Reader, typename ChunkSampler, typename ExampleSampler>
struct has_batch_size<
    torch::data::datasets::ChunkDataset<Reader, ChunkSampler, ExampleSampler>>
    : std::true_type {};
template <typename Source, typename Transform>
struct has_batch_size<torch::data::datasets::MapDataset<Source, Transform>>
    : has_batch_size<Source> {};
template <typename Source>
struct has_batch_size<torch::data::datasets::SharedBatchDataset<Source>>
    : has_batch_size<Source> {};

/// What a stateful data set is asked for: always the same.
///
/// For the library itself: a program has no need to name it, and it may change.
struct NoSampler {
  /// Does nothing: a stateful data set resets itself.
  void reset() {}
};

/// A data loader whose batches are dealt out after they were read
/// (`BatchDealer`), where a sampler cannot say beforehand who gets what: for
/// stateful data sets, streams, and `dispatch_batches`. Made by
/// `make_data_loader`; seen by the program as `Base`, torch's loader. Each
/// program compiles this class for each of its data sets: what needs only the
/// batches' type belongs in `DealtPass`.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Base, typename Dataset, typename Sampler = NoSampler>
class DealtDataLoader final : public Base,
                              public accel::detail::ResumableLoader {
  using Root = typename Base::super;
  using Result = typename Root::Result;
  using Request = typename Base::BatchRequestType;
  using Batch = typename Root::BatchType;
  using Sequencer = torch::data::detail::sequencers::Sequencer<Result>;

  static constexpr bool stateful = std::is_same_v<Sampler, NoSampler>;
  static_assert(
      !std::is_final_v<Dataset> && std::is_move_constructible_v<Dataset>,
      "accel::data::make_data_loader: the data set is final or cannot be "
      "moved, so that accel cannot come between it and the loader. Take final "
      "away, put it behind torch::data::datasets::make_shared_dataset, or load "
      "with torch::data::make_data_loader and distribute each batch "
      "with accelerator.distribute.");

 public:
  /// For stateful data sets.
  DealtDataLoader(Dataset dataset, torch::data::DataLoaderOptions options)
      : Base(std::move(dataset), options), pass_(pass(options)) {
    come_between();
  }

  DealtDataLoader(
      Dataset dataset,
      Sampler sampler,
      torch::data::DataLoaderOptions options)
      : Base(std::move(dataset), sampler, options),
        sampler_(std::move(sampler)),
        pass_(pass(options)) {
    come_between();
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

  /// Of each process, in a whole pass; empty for a stream.
  std::optional<int64_t> batches() const override {
    if constexpr (!stateful) {
      if (const auto samples = samples_of_pass(sampler_)) {
        return pass_.batches_of(*samples, /*evened=*/true);
      }
    }
    return std::nullopt;
  }

 private:
  /// With workers: gives what was dealt instead of what they have read.
  class Handover final : public Sequencer {
   public:
    using typename Sequencer::ResultProducer;

    Handover(std::unique_ptr<Sequencer> inner, DealtDataLoader& loader)
        : inner_(std::move(inner)), loader_(loader), producer_([&loader] {
            return loader.shuttle_.pop_result(loader.options_.timeout);
          }) {}

    std::optional<Result> next(ResultProducer /*next_result*/) override {
      auto batch = loader_.pass_.advance(loader_.fetch_);
      if (!batch) {
        loader_.shuttle_.drain(); // what was read in vain
        return std::nullopt;
      }
      return std::make_optional(Result(std::move(batch), number_++));
    }

    /// The next batch that the workers have read.
    std::optional<Batch> read() {
      while (auto result = inner_->next(producer_)) {
        if (result->exception) {
          throw torch::data::WorkerException(result->exception);
        }
        if (result->batch) {
          loader_.refill(1);
          return std::move(result->batch);
        }
        loader_.drained_ = true; // a stateful data set has come to its end
      }
      return std::nullopt;
    }

   private:
    std::unique_ptr<Sequencer> inner_;
    DealtDataLoader& loader_;
    ResultProducer producer_;
    size_t number_ = 0;
  };

  static DealtPass<Batch> pass(const torch::data::DataLoaderOptions& options) {
    return DealtPass<Batch>(
        c10::demangle_type<Dataset>(), options, has_batch_size<Dataset>::value);
  }

  void come_between() {
    if (this->options_.workers == 0) {
      this->main_thread_dataset_ =
          std::make_unique<DeliveringDataset<Dataset, Batch>>(
              std::move(*this->main_thread_dataset_), delivery_);
    }
  }

  // A pass begins: called by begin().
  void reset() override {
    drained_ = false;
    delivery_->reset();
    pass_.begin(
        [this] {
          sampler_.reset();
          if constexpr (stateful) {
            this->main_thread_dataset_->reset();
          }
        },
        [this] {
          Root::reset();
          if (this->options_.workers > 0) {
            auto handover =
                std::make_unique<Handover>(std::move(this->sequencer_), *this);
            handover_ = handover.get();
            this->sequencer_ = std::move(handover);
            refill(this->options_.max_jobs);
          }
        },
        fetch_);
  }

  void refill(size_t jobs) {
    if (pass_.reads() && !drained_) {
      filling_ = true;
      this->prefetch(jobs);
      filling_ = false;
    }
  }

  /// The base asks for what is to be read next: by workers, or at once.
  std::optional<Request> get_batch_request() override {
    if (this->options_.workers > 0) {
      // The base would ask for a batch for each that it hands out; how many are
      // read for one is decided here.
      return filling_ ? next_request() : std::nullopt;
    }
    *delivery_ = pass_.advance(fetch_);
    return delivery_->has_value() ? any_request() : std::nullopt;
  }

  std::optional<Request> next_request() {
    const size_t size = pass_.request_size();
    if constexpr (stateful) {
      return Request(size);
    } else {
      auto request = sampler_.next(size);
      if (request && this->options_.drop_last && request->size() < size) {
        return std::nullopt;
      }
      return request;
    }
  }

  /// Where the batch is there already, it does not matter.
  std::optional<Request> any_request() {
    if constexpr (stateful) {
      return Request(this->options_.batch_size);
    } else if constexpr (std::is_default_constructible_v<Request>) {
      return Request();
    } else {
      return Request(this->options_.batch_size);
    }
  }

  std::optional<Batch> fetch() {
    if (this->options_.workers > 0) {
      return handover_->read();
    }
    auto request = next_request();
    if (!request) {
      return std::nullopt;
    }
    return this->main_thread_dataset_->get_batch(std::move(*request));
  }

  Sampler sampler_;
  DealtPass<Batch> pass_;
  const typename DealtPass<Batch>::Fetch fetch_ = [this] { return fetch(); };
  std::shared_ptr<std::optional<Batch>> delivery_ =
      std::make_shared<std::optional<Batch>>();

  // Of the current pass.
  /// Owned by the base, with workers.
  Handover* handover_ = nullptr;
  bool filling_ = false;
  bool drained_ = false;
};

} // namespace accel::data
