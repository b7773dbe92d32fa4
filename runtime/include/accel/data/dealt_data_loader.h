#pragma once

#include <accel/data/batch_dealer.h>
#include <accel/data/cursor.h>
#include <accel/data/generators.h>
#include <accel/data/place_batch.h>
#include <accel/data/sharding.h>
#include <accel/detail/phase.h>
#include <accel/gradient_state.h>

#include <torch/data/datasets/chunk.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/shared.h>
#include <torch/data/dataloader/stateful.h>
#include <torch/data/dataloader/stateless.h>
#include <torch/data/worker_exception.h>

#include <c10/util/Type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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
/// `make_data_loader`; seen by the program as `Base`, torch's loader.
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
      : Base(std::move(dataset), options) {
    come_between();
  }

  DealtDataLoader(
      Dataset dataset,
      Sampler sampler,
      torch::data::DataLoaderOptions options)
      : Base(std::move(dataset), sampler, options),
        sampler_(std::move(sampler)) {
    come_between();
  }

  /// How far this pass is, for a checkpoint.
  accel::detail::LoaderCursor cursor() const override {
    accel::detail::LoaderCursor cursor;
    cursor.sampler = std::string("dealt ") + c10::demangle_type<Dataset>();
    const auto sharding =
        in_pass_ ? sharding_ : accel::detail::sharding_options();
    cursor.batch_size = static_cast<int64_t>(this->options_.batch_size) *
        sharding.batches_in_one();
    cursor.drop_last = this->options_.drop_last;
    cursor.sharing = sharding.match_single_device ? "match_single_device"
        : sharding.split_batches                  ? "split_batches"
                                                  : "batch_per_process";
    cursor.world = sharding.world;
    cursor.in_pass = in_pass_;
    if (in_pass_) {
      cursor.in_body = state_->open_bodies > 0;
      cursor.left = state_->left();
      cursor.batches = steps_;
      cursor.fingerprint = fingerprint_;
      cursor.generator = pass_generator_;
    }
    return cursor;
  }

  /// The next pass goes on where the cursor was.
  void resume(accel::detail::LoaderCursor cursor) override {
    leave();
    skip_ = 0;
    resume_.reset();
    if (cursor.in_pass) {
      resume_ = std::move(cursor);
    }
  }

  /// The next pass leaves these batches out. Throws `c10::Error` for a negative
  /// number.
  void skip_first_batches(int64_t batches) override {
    TORCH_CHECK(
        batches >= 0,
        "accel: skip_first_batches was asked to skip ",
        batches,
        " batches.");
    skip_ = batches;
  }

  /// Ends the pass.
  void leave() override {
    end_pass();
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
      auto batch = loader_.advance();
      return batch ? std::make_optional(Result(std::move(batch), number_++))
                   : std::nullopt;
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

  void come_between() {
    if (this->options_.workers == 0) {
      this->main_thread_dataset_ =
          std::make_unique<DeliveringDataset<Dataset, Batch>>(
              std::move(*this->main_thread_dataset_), delivery_);
    }
  }

  bool reads() const {
    return !dispatch_ || sharding_.rank == 0 || sharding_.world == 1;
  }

  // A pass begins: called by begin().
  void reset() override {
    sharding_ = accel::detail::sharding_options();
    dispatch_ = sharding_.dispatch_batches.value_or(true);
    drained_ = false;
    steps_ = 0;
    fingerprint_ = 0;
    delivery_->reset();
    state_->end_pass();

    DealingOptions options;
    options.sharding = sharding_;
    options.dispatch = dispatch_;
    options.batch_size = static_cast<int64_t>(request_size());
    options.joined = has_batch_size<Dataset>::value ? sharding_.batches_in_one() : 1;
    options.looks_ahead =
        (sharding_.world > 1 && !sharding_.match_single_device) ||
        GradientState::get().num_steps > 1;
    options.generator_in_step =
        sharding_.match_single_device && this->options_.workers == 0;
    options.device = accel::detail::current_device();
    options.drop_last = this->options_.drop_last;
    dealer_.emplace(options);
    in_pass_ = true;
    GradientState::get().enter(state_);

    if (resume_) {
      const auto cursor = *std::exchange(resume_, std::nullopt);
      const accel::detail::GeneratorInState generator(cursor.generator);
      start();
      leave_out(cursor.batches);
      if (steps_ != cursor.batches || fingerprint_ != cursor.fingerprint) {
        end_pass();
        accel::detail::throw_other_batches(cursor.sampler, cursor.batches);
      }
    } else {
      if (sharding_.world > 1 && sharding_.match_single_device) {
        accel::detail::synchronize_generators();
      }
      start();
      leave_out(std::exchange(skip_, 0));
    }
  }

  void start() {
    start_stream();
    if (sharding_.world > 1 && sharding_.match_single_device && dispatch_) {
      // What process 0 has drawn for all.
      accel::detail::follow_main_process_generator();
    }
    Root::reset();
    if (this->options_.workers > 0) {
      auto handover =
          std::make_unique<Handover>(std::move(this->sequencer_), *this);
      handover_ = handover.get();
      this->sequencer_ = std::move(handover);
      refill(this->options_.max_jobs);
    }
  }

  void start_stream() {
    std::optional<accel::detail::MainProcessGenerator> generator;
    if (sharding_.world > 1 && !sharding_.match_single_device && !dispatch_) {
      generator.emplace(); // the streams are to be equal
    }
    pass_generator_ = accel::detail::generator_state();
    if (reads()) {
      sampler_.reset();
      if constexpr (stateful) {
        this->main_thread_dataset_->reset();
      }
    }
  }

  void refill(size_t jobs) {
    if (reads() && !drained_) {
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
    *delivery_ = advance();
    return delivery_->has_value() ? any_request() : std::nullopt;
  }

  /// Samples that the sampler or the data set is asked for at once.
  size_t request_size() const {
    const bool fixed = has_batch_size<Dataset>::value;
    return this->options_.batch_size *
        static_cast<size_t>(fixed ? 1 : sharding_.batches_in_one());
  }

  std::optional<Request> next_request() {
    if constexpr (stateful) {
      return Request(request_size());
    } else {
      auto request = sampler_.next(request_size());
      if (request && this->options_.drop_last &&
          request->size() < request_size()) {
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

  /// The next step; this process's batch of it.
  std::optional<Batch> advance() {
    auto step = dealer_->next([this] { return fetch(); });
    if (!step.about.batch) {
      if (this->options_.workers > 0) {
        this->shuttle_.drain(); // what was read in vain
      }
      end_pass();
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

  void leave_out(int64_t steps) {
    while (steps_ < steps) {
      const auto step =
          dealer_->next([this] { return fetch(); }, /*deliver=*/false);
      if (!step.about.batch) {
        return;
      }
      count(step.about);
    }
  }

  void count(const accel::detail::DealtStep& step) {
    fingerprint_ += accel::detail::mix_fingerprint(
        step.fingerprint, static_cast<uint64_t>(steps_));
    ++steps_;
  }

  void end_pass() {
    in_pass_ = false;
    GradientState::get().leave(state_);
    state_->end_pass();
  }

  Sampler sampler_;
  std::shared_ptr<DataLoaderState> state_ =
      std::make_shared<DataLoaderState>();
  std::shared_ptr<std::optional<Batch>> delivery_ =
      std::make_shared<std::optional<Batch>>();

  // Of the current pass.
  ShardingOptions sharding_;
  bool dispatch_ = true;
  std::optional<BatchDealer<Batch>> dealer_;
  /// Owned by the base, with workers.
  Handover* handover_ = nullptr;
  bool in_pass_ = false;
  bool filling_ = false;
  bool drained_ = false;
  int64_t steps_ = 0;
  uint64_t fingerprint_ = 0;
  at::Tensor pass_generator_;

  // Of the next pass.
  std::optional<accel::detail::LoaderCursor> resume_;
  int64_t skip_ = 0;
};

} // namespace accel::data
