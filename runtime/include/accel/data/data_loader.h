#pragma once

#include <accel/data/dealt_data_loader.h>
#include <accel/data/sharded_data_loader.h>

#include <torch/data/dataloader.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel::data {

namespace detail {

/// The loader, of which a checkpoint that was loaded may know.
template <typename Loader>
std::unique_ptr<Loader> entered(
    const accel::detail::LoaderEntry& entry,
    std::unique_ptr<Loader> loader) {
  entry.enter(*loader);
  return loader;
}

/// `make_data_loader` with a sampler, under way since `entry` was made.
template <typename Dataset, typename Sampler>
std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>> make_stateless(
    const accel::detail::LoaderEntry& entry,
    Dataset dataset,
    Sampler sampler,
    torch::data::DataLoaderOptions options) {
  using Base = torch::data::StatelessDataLoader<Dataset, Sampler>;
  using Dealt = DealtDataLoader<Base, Dataset, Sampler>;
  if constexpr (!is_index_list<typename Sampler::BatchRequestType>::value) {
    return entered(
        entry,
        std::make_unique<Dealt>(std::move(dataset), std::move(sampler), options));
  } else {
    if (accel::detail::sharding_options().dispatch_batches.value_or(false)) {
      if constexpr (can_derive_from<Dataset>::value) {
        return entered(
            entry,
            std::make_unique<Dealt>(
                std::move(dataset), std::move(sampler), options));
      } else {
        TORCH_CHECK(
            false,
            "accel: dispatch_batches(true) needs a data set that can be moved "
            "and is not final.");
      }
    }
    const std::optional<size_t> size = dataset.size();
    return entered(
        entry,
        std::make_unique<ShardedDataLoader<Dataset, Sampler>>(
            std::move(dataset), std::move(sampler), options, size));
  }
}

} // namespace detail

/// `torch::data::make_data_loader` for several processes: the same arguments,
/// the same static type. Every process must make the same loaders and iterate
/// over them at the same time.
///
/// How a pass is shared is what the `Accelerator` says when the pass begins
/// (`AcceleratorOptions`):
///
/// - One process, or no `Accelerator`: the batches of torch's own loader, in
///   the same order, with the same random numbers drawn.
/// - `match_single_device`: `options.batch_size()` is that of the global batch,
///   or with `split_batches(false)` the N-th part of it, for N processes. All
///   processes draw the same batches, those of one device; the tensors of a
///   batch are distributed tensors, of which a process loads only its rows where
///   the data set loads sample by sample (`loads_rows`). Batches with fewer
///   samples than there are processes, and vectors of samples, all have in full.
/// - otherwise as Accelerate does it (`BatchSamplerShard`): each process gets
///   every n-th batch, or a part of each with `split_batches`; the last ones
///   are filled up from the beginning with `even_batches`.
///   `GradientState::remainder` tells the samples of the last step that are not
///   repetitions.
///
/// `GradientState::end_of_dataloader` is true in the body of the last batch.
/// For that, torch's own samplers are asked for one batch more ahead. A sampler
/// of your own is, so that its random numbers are drawn at the usual moment,
/// asked ahead only where the end must be known (gradient accumulation, or
/// Accelerate's way of sharing); else the end is where the data set's size says.
///
/// Random numbers. In `match_single_device` a data set that draws in the main
/// thread (`workers(0)`) gives the samples of the single-device program: the
/// processes then load complete batches and keep their rows. What workers draw is not reproducible, as always.
/// In Accelerate's mode the sampler's `reset` draws from process 0's generator.
///
/// With several processes results keep their order even with
/// `enforce_ordering(false)`.
///
/// With `dispatch_batches(true)` process 0 alone draws and loads the batches and
/// sends each process its part (`BatchDealer`), and `end_of_dataloader` is known
/// where it is of stateful data sets, see below. The `Accelerator` must exist when
/// such a loader is made.
///
/// `sampler` must be copyable. Where it gives something else than lists of
/// indices (`torch::data::samplers::StreamSampler`), batches are dealt out as
/// those of stateful data sets are. Throws `c10::Error` for a batch size of 0, and at
/// the start of a pass where `split_batches` cannot divide the batch size.
template <typename Dataset, typename Sampler>
std::enable_if_t<
    !Dataset::is_stateful,
    std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>>>
make_data_loader(
    Dataset dataset,
    Sampler sampler,
    torch::data::DataLoaderOptions options) {
  accel::detail::LoaderEntry entry;
  if constexpr (std::is_constructible_v<Sampler, size_t>) {
    if (const std::optional<size_t> size = dataset.size()) {
      entry.sampler_is_new([&] { Sampler another(*size); });
    }
  }
  return detail::make_stateless(
      entry, std::move(dataset), std::move(sampler), options);
}

/// The same with a sampler that is made from the data set's size. Throws
/// `c10::Error` where the data set does not know its size.
template <
    typename Sampler = torch::data::samplers::RandomSampler,
    typename Dataset>
std::enable_if_t<
    !Dataset::is_stateful && std::is_constructible_v<Sampler, size_t>,
    std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>>>
make_data_loader(
    Dataset dataset,
    torch::data::DataLoaderOptions options =
        torch::data::DataLoaderOptions()) {
  const std::optional<size_t> size = dataset.size();
  TORCH_CHECK(
      size.has_value(),
      "Expected the dataset to be sized in order to construct the Sampler");
  const accel::detail::LoaderEntry entry;
  return detail::make_stateless(
      entry, std::move(dataset), Sampler(*size), options);
}

/// The same for data sets that decide themselves what comes next
/// (`ChunkDataset`, `StatefulDataset`). Process 0 reads and sends each process
/// its part; with `dispatch_batches(false)` every process reads the whole stream
/// and keeps its part, and what they read is compared. In both cases, as in
/// `match_single_device`: see `BatchDealer`.
///
/// With `match_single_device` and `split_batches(false)` the data set is asked for
/// N times `options.batch_size()` samples; of one that has a batch size of its
/// own (`has_batch_size`: `ChunkDataset`), N batches are put together.
///
/// Batches must be of a type that can be sent (`BatchCodec`) and cut
/// (`RowsOf`): tensors, `torch::data::Example`s, and vectors, maps, tuples and
/// pairs of such are.
///
/// `GradientState::end_of_dataloader` needs a batch to be read ahead, which
/// happens where the end must be known: with gradient accumulation, and where several
/// processes share in Accelerate's way. Else, as with one process, it stays false.
///
/// A pass that was interrupted is read again up to where it was, from the
/// generator's state at its beginning; where other batches come then, it is an
/// error. State that a data set keeps from one pass to the next is the
/// program's to save (`register_for_checkpointing`).
template <typename Dataset>
std::enable_if_t<
    Dataset::is_stateful,
    std::unique_ptr<torch::data::StatefulDataLoader<Dataset>>>
make_data_loader(
    Dataset dataset,
    torch::data::DataLoaderOptions options =
        torch::data::DataLoaderOptions()) {
  using Base = torch::data::StatefulDataLoader<Dataset>;
  const accel::detail::LoaderEntry entry;
  return detail::entered(
      entry,
      std::make_unique<DealtDataLoader<Base, Dataset>>(
          std::move(dataset), options));
}

} // namespace accel::data
