#pragma once

#include <accel/data/cursor.h>
#include <accel/data/fetch_plan.h>
#include <accel/data/generators.h>
#include <accel/data/loader_pass.h>
#include <accel/data/seedable_random_sampler.h>
#include <accel/data/sharding.h>
#include <accel/export.h>
#include <accel/gradient_state.h>

#include <torch/data/dataloader_options.h>
#include <torch/data/samplers/base.h>
#include <torch/data/samplers/distributed.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/serialize/archive.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace accel::data {

/// Whether `Request` is a list that can be cut and put together.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Request, typename = void>
struct is_index_list : std::false_type {};
template <typename Request>
struct is_index_list<
    Request,
    std::void_t<
        typename Request::value_type,
        decltype(Request(
            std::declval<const Request&>().begin(),
            std::declval<const Request&>().end())),
        decltype(std::declval<const Request&>().size())>> : std::true_type {};

/// Torch's own, that give each process other indices.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Sampler>
inline constexpr bool deals_out_itself =
    std::is_same_v<Sampler, torch::data::samplers::DistributedRandomSampler> ||
    std::is_same_v<
        Sampler,
        torch::data::samplers::DistributedSequentialSampler>;

/// Samplers that draw nothing from the default generator between two passes,
/// and so can be asked for a batch earlier than the loader needs it.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Sampler>
inline constexpr bool samples_ahead =
    std::is_same_v<Sampler, torch::data::samplers::RandomSampler> ||
    std::is_same_v<Sampler, torch::data::samplers::SequentialSampler> ||
    std::is_same_v<Sampler, SeedableRandomSampler> || deals_out_itself<Sampler>;

/// Samplers whose passes are made from the default generator and nothing else,
/// so that a checkpoint needs no more than the generator.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Sampler>
inline constexpr bool made_from_generator =
    std::is_same_v<Sampler, torch::data::samplers::RandomSampler> ||
    std::is_same_v<Sampler, torch::data::samplers::SequentialSampler>;

/// Samples of a whole pass of a sampler that can be asked ahead; empty for another
/// one, whose batches may depend on what the program does in between. A copy is
/// asked: a data set's size need not be what the sampler draws from it.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Sampler>
std::optional<int64_t> samples_of_pass(const Sampler& sampler) {
  if constexpr (samples_ahead<Sampler>) {
    const accel::detail::GeneratorInState as_before(
        accel::detail::generator_state());
    Sampler copy(sampler);
    copy.reset();
    int64_t samples = 0;
    while (const auto indices = copy.next(/*batch_size=*/1 << 16)) {
      samples += static_cast<int64_t>(indices->size());
    }
    return samples;
  } else {
    return std::nullopt;
  }
}

/// The passes of one loader over its sampler: which samples this process is to
/// load next, and how far the program has come. It depends on the sampler and not
/// on the data set, so that for torch's own samplers it is compiled once, in the
/// library.
///
/// The loader calls `begin`, then `next` for every batch that it wants to load,
/// and `hand_out` when the program gets it. Used by the main thread only.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Sampler>
class SamplerPass : public LoaderPass {
 public:
  /// The sampler's list of indices.
  using Request = typename Sampler::BatchRequestType;

  static_assert(
      is_index_list<Request>::value,
      "accel::data::make_data_loader: the sampler's batch request is not a "
      "list of indices, so accel cannot split it between the processes. Load "
      "with torch::data::make_data_loader and distribute each batch "
      "with accelerator.distribute.");
  static_assert(
      std::is_copy_constructible_v<Sampler>,
      "accel::data::make_data_loader: the sampler must be copyable.");

  /// How a batch that a worker has loaded becomes distributed.
  struct Placement {
    /// Samples of the complete batch; 0: it stays what it is.
    int64_t rows;
    /// It has this process's samples only.
    bool by_rows;
  };

  /// `size`: the data set's, where it has one. `loads_by_rows`: of a batch that
  /// is to be distributed workers may load this process's samples only.
  SamplerPass(
      Sampler sampler,
      const torch::data::DataLoaderOptions& options,
      std::optional<size_t> size,
      bool loads_by_rows)
      : LoaderPass(c10::demangle_type<Sampler>(), options),
        sampler_(std::move(sampler)),
        loads_by_rows_(loads_by_rows),
        size_(size) {
    plan_->state = state_;
  }

  /// What the main thread's data set is told of each batch.
  const std::shared_ptr<FetchPlan<Request>>& plan() const {
    return plan_;
  }

  /// A pass begins. Every process must call it.
  void begin();

  /// What is to be loaded next; nothing at the end. In the main thread
  /// (`workers(0)`) the program gets it next, and `plan` says which rows.
  std::optional<Request> next();

  /// How batch `number` of this pass, which a worker has loaded, is placed.
  Placement placement(size_t number) const {
    const auto& requested = in_flight_.at(number);
    return {requested.distribute, loads_by_rows()};
  }

  /// The program gets batch `number` of this pass.
  void hand_out(size_t number);

  /// The pass is over, or was left.
  void end();

  /// See `ResumableLoader`.
  std::optional<int64_t> batches() const;
  /// See `ResumableLoader`.
  accel::detail::LoaderCursor cursor() const;
  /// See `ResumableLoader`.
  void resume(accel::detail::LoaderCursor cursor);

 private:
  struct Planned {
    Request request;
    /// Of a complete batch that is to be distributed: this process's samples.
    std::optional<Request> rows;
    /// See `DataLoaderState`.
    bool uneven = false;
    bool ghost = false;
  };

  /// What is kept of a batch that has been requested.
  struct Requested {
    uint64_t fingerprint;
    /// Samples of the complete batch where what a worker returns is to be
    /// distributed, else 0.
    int64_t distribute;
    bool uneven;
    bool ghost;
  };

  void reset_sampler();
  void start_sampler();
  /// Draws the batches of an interrupted pass again, which all processes know
  /// alike, and leaves those out that the program had.
  void go_on(const accel::detail::LoaderCursor& cursor);
  void skip(int64_t batches);
  static uint64_t fingerprint_of(int64_t number, const Planned& batch);
  static std::string save_sampler(const Sampler& sampler);
  void load_sampler(const std::string& bytes);

  /// The next batch of the sampler, which is the one of a single device.
  std::optional<Request> sample();
  std::optional<Request> next_indices();
  /// This process's next batch.
  std::optional<Planned> take();
  /// For a sampler that is not asked ahead: whether the batch that it gave last
  /// ends the pass, as far as sizes tell.
  bool seems_last(const Planned& batch) const;

  /// Workers load this process's samples only.
  bool loads_by_rows() const {
    return loads_by_rows_ && !sharding_.load_whole_batches;
  }
  /// Samples that all processes together get in one step.
  int64_t total_batch_size() const {
    const bool whole_per_process =
        !sharding_.match_single_device && !sharding_.split_batches;
    return batch_size(sharding_) * (whole_per_process ? sharding_.world : 1);
  }

  Sampler sampler_;
  bool loads_by_rows_;
  std::optional<size_t> size_;
  std::shared_ptr<FetchPlan<Request>> plan_ =
      std::make_shared<FetchPlan<Request>>();

  // Of the current pass.
  std::optional<BatchSamplerShard<Request>> shard_;
  bool looks_ahead_ = true;
  std::optional<Planned> ahead_;
  /// No batch follows those that have been requested.
  bool exhausted_ = false;
  /// Samples that the sampler has given, all processes'.
  int64_t samples_ = 0;
  size_t requested_ = 0;
  size_t handed_out_ = 0;
  /// One more than the greatest number that was handed out.
  size_t highest_ = 0;
  /// Batches in front of those that were requested.
  int64_t skipped_ = 0;
  /// Of the batches that were skipped or handed out.
  uint64_t fingerprint_ = 0;
  /// The batches that have been requested and not handed out, by number.
  std::map<size_t, Requested> in_flight_;
  /// The sampler as it was before the pass.
  std::optional<Sampler> sampler_before_;
};

template <typename Sampler>
std::optional<int64_t> SamplerPass<Sampler>::batches() const {
  const auto samples = samples_of_pass(sampler_);
  return samples
      ? std::make_optional(batches_of(*samples, /*evened=*/false))
      : std::nullopt;
}

template <typename Sampler>
accel::detail::LoaderCursor SamplerPass<Sampler>::cursor() const {
  auto cursor = LoaderPass::cursor(
      skipped_ + static_cast<int64_t>(handed_out_), fingerprint_);
  cursor.size = size_ ? static_cast<int64_t>(*size_) : -1;
  cursor.in_order = !in_pass_ || highest_ == handed_out_;
  if constexpr (!made_from_generator<Sampler>) {
    cursor.sampler_state =
        save_sampler(in_pass_ ? *sampler_before_ : sampler_);
  }
  return cursor;
}

template <typename Sampler>
void SamplerPass<Sampler>::resume(accel::detail::LoaderCursor cursor) {
  if constexpr (!made_from_generator<Sampler>) {
    load_sampler(cursor.sampler_state);
  }
  end();
  resume_at(std::move(cursor));
}

template <typename Sampler>
void SamplerPass<Sampler>::begin() {
  sharding_ = accel::detail::sharding_options();
  TORCH_CHECK(
      sharding_.world == 1 || !sharding_.dispatch_batches.value_or(false),
      "accel: with dispatch_batches(true) the Accelerator must exist when "
      "accel::data::make_data_loader is called. Make the Accelerator at the "
      "top of main.");
  if constexpr (deals_out_itself<Sampler>) {
    TORCH_CHECK(
        sharding_.world == 1 || sharding_.match_single_device,
        "accel: a data loader has the sampler ",
        name_,
        ", and what it gives each process would be shared out once more. Take "
        "RandomSampler, or SequentialSampler: the loader deals out the samples.");
  }
  shard_.reset();
  ahead_.reset();
  exhausted_ = false;
  samples_ = 0;
  requested_ = 0;
  handed_out_ = 0;
  highest_ = 0;
  skipped_ = 0;
  fingerprint_ = 0;
  in_flight_.clear();
  plan_->rows.reset();
  plan_->draws = plan_->draws || sharding_.load_whole_batches;
  in_pass_ = true;
  state_->end_pass();
  if (!drop_last_ && size_) {
    state_->remainder = static_cast<int64_t>(*size_) % total_batch_size();
  }
  GradientState::get().enter(state_);
  if (sharding_.world > 1 && !sharding_.match_single_device) {
    shard_.emplace(sharding_, batch_size(sharding_), drop_last_);
  }
  if (resume_) {
    go_on(*std::exchange(resume_, std::nullopt));
  } else {
    reset_sampler();
  }
  // From the beginning of the pass, also of one that goes on: what Accelerate's
  // programs skip behind load_state is what the checkpoint has skipped already.
  skip(std::exchange(skip_, 0));
  looks_ahead_ = samples_ahead<Sampler> || shard_.has_value() ||
      GradientState::get().num_steps > 1;
  if (looks_ahead_) {
    ahead_ = take();
  }
}

template <typename Sampler>
auto SamplerPass<Sampler>::next() -> std::optional<Request> {
  auto batch = looks_ahead_ ? std::exchange(ahead_, std::nullopt) : take();
  if (batch && looks_ahead_) {
    ahead_ = take();
  }
  exhausted_ = looks_ahead_ ? !ahead_ : !batch || seems_last(*batch);
  if (!batch) {
    if (main_thread_) {
      end();
    }
    return std::nullopt;
  }
  const size_t number = requested_++;
  in_flight_.emplace(
      number,
      Requested{
          fingerprint_of(skipped_ + static_cast<int64_t>(number), *batch),
          batch->rows ? static_cast<int64_t>(batch->request.size()) : 0,
          batch->uneven,
          batch->ghost});
  if (main_thread_) {
    plan_->rows = std::move(batch->rows);
    hand_out(number);
  } else if (batch->rows && loads_by_rows()) {
    return std::move(batch->rows);
  }
  return std::move(batch->request);
}

template <typename Sampler>
void SamplerPass<Sampler>::hand_out(size_t number) {
  ++handed_out_;
  highest_ = std::max(highest_, number + 1);
  const auto requested = in_flight_.find(number);
  state_->uneven = requested->second.uneven;
  state_->ghost = requested->second.ghost;
  fingerprint_ += requested->second.fingerprint;
  compare(requested->second.fingerprint);
  in_flight_.erase(requested);
  GradientState::get().hand_out(state_);
  state_->end_of_dataloader = exhausted_ && handed_out_ == requested_;
  if (state_->end_of_dataloader && !drop_last_ && (looks_ahead_ || size_)) {
    state_->remainder = samples_ % total_batch_size();
  }
}

template <typename Sampler>
void SamplerPass<Sampler>::end() {
  LoaderPass::end();
  plan_->settled = plan_->settled || sharding_.match_single_device;
  plan_->rows.reset();
}

template <typename Sampler>
void SamplerPass<Sampler>::reset_sampler() {
  if (sharding_.world == 1) {
    start_sampler();
  } else if (sharding_.match_single_device) {
    accel::detail::synchronize_generators();
    start_sampler();
  } else {
    const accel::detail::MainProcessGenerator generator;
    start_sampler();
  }
}

template <typename Sampler>
void SamplerPass<Sampler>::start_sampler() {
  pass_generator_ = accel::detail::generator_state();
  if constexpr (!made_from_generator<Sampler>) {
    sampler_before_.emplace(sampler_);
  }
  sampler_.reset();
}

template <typename Sampler>
void SamplerPass<Sampler>::go_on(const accel::detail::LoaderCursor& cursor) {
  const accel::detail::GeneratorInState generator(cursor.generator);
  start_sampler();
  skip(cursor.batches);
  // With split batches the fingerprint is that of one process's part.
  const bool comparable =
      cursor.world == sharding_.world || sharding_.match_single_device;
  if (skipped_ != cursor.batches ||
      (comparable && fingerprint_ != cursor.fingerprint)) {
    in_pass_ = false;
    GradientState::get().leave(state_);
    accel::detail::throw_other_batches(cursor.sampler, cursor.batches);
  }
}

template <typename Sampler>
void SamplerPass<Sampler>::skip(int64_t batches) {
  for (; skipped_ < batches; ++skipped_) {
    const auto batch = take();
    if (!batch) {
      return;
    }
    fingerprint_ += fingerprint_of(skipped_, *batch);
  }
}

template <typename Sampler>
uint64_t SamplerPass<Sampler>::fingerprint_of(
    int64_t number,
    const Planned& batch) {
  uint64_t fingerprint = static_cast<uint64_t>(number);
  if constexpr (std::is_integral_v<typename Request::value_type>) {
    for (const auto index : batch.request) {
      fingerprint = accel::detail::mix_fingerprint(
          fingerprint, static_cast<uint64_t>(index));
    }
  }
  return fingerprint;
}

template <typename Sampler>
std::string SamplerPass<Sampler>::save_sampler(const Sampler& sampler) {
  if constexpr (std::is_base_of_v<
                    torch::data::samplers::Sampler<Request>,
                    Sampler>) {
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    std::ostringstream bytes;
    archive.save_to(bytes);
    return bytes.str();
  } else {
    return "";
  }
}

template <typename Sampler>
void SamplerPass<Sampler>::load_sampler(const std::string& bytes) {
  if constexpr (std::is_base_of_v<
                    torch::data::samplers::Sampler<Request>,
                    Sampler>) {
    std::istringstream stream(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    sampler_.load(archive);
  }
}

template <typename Sampler>
auto SamplerPass<Sampler>::sample() -> std::optional<Request> {
  auto indices = next_indices();
  if (!indices ||
      (drop_last_ &&
       static_cast<int64_t>(indices->size()) < batch_size(sharding_))) {
    return std::nullopt;
  }
  TORCH_CHECK(indices->size() > 0, "The sampler returned an empty batch.");
  samples_ += static_cast<int64_t>(indices->size());
  return indices;
}

template <typename Sampler>
auto SamplerPass<Sampler>::next_indices() -> std::optional<Request> {
  const auto size = static_cast<size_t>(batch_size(sharding_));
  if (samples_ahead<Sampler> || !shard_) {
    return sampler_.next(size);
  }
  const accel::detail::GeneratorMark mark;
  auto indices = sampler_.next(size);
  TORCH_CHECK(
      !mark.moved(),
      "The sampler ",
      name_,
      " draws random numbers in next(). Each process has numbers of its own, "
      "so the processes would not agree on the batches. Draw them in "
      "reset(), which uses process 0's generator, or set "
      "match_single_device(true).");
  return indices;
}

template <typename Sampler>
auto SamplerPass<Sampler>::take() -> std::optional<Planned> {
  if (shard_) {
    auto request = shard_->next([this] { return sample(); });
    if (!request) {
      return std::nullopt;
    }
    return Planned{
        std::move(*request), std::nullopt, shard_->uneven(), shard_->ghost()};
  }
  auto whole = sample();
  if (!whole) {
    return std::nullopt;
  }
  const auto n = static_cast<int64_t>(whole->size());
  const auto range = sharding_.rows(n, sharding_.rank);
  if (!sharding_.match_single_device || !sharding_.cuts(n)) {
    return Planned{std::move(*whole), std::nullopt};
  }
  const auto first = whole->begin() + range.offset;
  Request rows(first, first + range.rows);
  return Planned{std::move(*whole), std::move(rows)};
}

template <typename Sampler>
bool SamplerPass<Sampler>::seems_last(const Planned& batch) const {
  const auto size = static_cast<int64_t>(batch.request.size());
  if (!size_) {
    return size < batch_size(sharding_);
  }
  const int64_t left = static_cast<int64_t>(*size_) - samples_;
  return left < (drop_last_ ? batch_size(sharding_) : 1);
}

// In the library: nearly every program has one of them.
extern template class ACCEL_API
    SamplerPass<torch::data::samplers::RandomSampler>;
extern template class ACCEL_API
    SamplerPass<torch::data::samplers::SequentialSampler>;

} // namespace accel::data
