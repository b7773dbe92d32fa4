#pragma once

#include <accel/data/sharded_data_loader.h>

#include <torch/data/dataloader.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel::data {

/// `torch::data::make_data_loader` for several processes: the same arguments,
/// the same static type. Every process must make the same loaders and iterate
/// over them at the same time.
///
/// How a pass is shared is what the `Accelerator` says when the pass begins
/// (`AcceleratorOptions`):
///
/// - One process, or no `Accelerator`: the batches of torch's own loader, in
///   the same order, with the same random numbers drawn.
/// - `match_single_device`: `options.batch_size()` is the global batch. All
///   processes draw the same batches, those of one device, and each is handed
///   its contiguous part (`BatchShare`); where nothing is left for a process it
///   gets ghost rows that do not count. `GradientState::share` tells the part.
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
/// processes then load complete batches and keep their rows (see `RowsOf` for
/// batch types of your own). What workers draw is not reproducible, as always.
/// In Accelerate's mode the sampler's `reset` draws from process 0's generator.
///
/// With several processes results keep their order even with
/// `enforce_ordering(false)`.
///
/// `sampler` must be copyable and give lists of indices. Throws `c10::Error` at
/// the start of a pass where `split_batches` cannot divide the batch size.
template <typename Dataset, typename Sampler>
std::enable_if_t<
    !Dataset::is_stateful,
    std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>>>
make_data_loader(
    Dataset dataset,
    Sampler sampler,
    torch::data::DataLoaderOptions options) {
  const std::optional<size_t> size = dataset.size();
  return std::make_unique<ShardedDataLoader<Dataset, Sampler>>(
      std::move(dataset), std::move(sampler), options, size);
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
  return accel::data::make_data_loader(std::move(dataset), Sampler(*size), options);
}

/// Data sets that decide themselves what comes next (`ChunkDataset`,
/// `StatefulDataset`) are not split by a loader.
template <typename Dataset, typename = std::enable_if_t<Dataset::is_stateful>>
std::unique_ptr<torch::data::StatefulDataLoader<Dataset>> make_data_loader(
    Dataset /*dataset*/,
    torch::data::DataLoaderOptions /*options*/ =
        torch::data::DataLoaderOptions()) {
  static_assert(
      !Dataset::is_stateful,
      "accel::data::make_data_loader: a stateful data set (ChunkDataset, "
      "StatefulDataset) decides itself what comes next, so its batches cannot "
      "be assigned to processes. Load with torch::data::make_data_loader and "
      "split each batch with accelerator.shard_batch.");
}

} // namespace accel::data
