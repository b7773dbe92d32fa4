#pragma once

#include <accel/batch_share.h>
#include <accel/data/generators.h>
#include <accel/data/rows.h>
#include <accel/data/whole_batch.h>

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace accel::data {

/// Whether a data loader may put a class derived from `Dataset` in its place,
/// which overrides `get_batch`. Specialise it to `std::false_type` for a data
/// set that declares its `get_batch` final.
template <typename Dataset>
struct can_derive_from
    : std::bool_constant<
          !std::is_final_v<Dataset> &&
          std::is_move_constructible_v<Dataset>> {};

/// What the loader knows about the batch that it fetches next. Shared by the
/// loader and its data set; used by the main thread only.
template <typename Request>
struct FetchPlan {
  struct Batch {
    /// The complete batch, of which this process fetches `share`.
    Request whole;
    BatchShare share;
  };

  /// Empty where complete batches are fetched anyway.
  std::optional<Batch> batch;
  /// The data set draws random numbers: every process fetches complete
  /// batches, as one device does, and keeps its rows.
  bool draws = false;
  /// A complete pass has shown that the data set does not draw.
  bool settled = false;
};

/// The data set of a loader without workers that hands out parts of batches
/// (`match_single_device`).
///
/// Normally it fetches this process's samples and no others. Where the data set
/// draws random numbers (augmentation in `get`), that would make the
/// processes' generators part, and the samples would differ from those of one
/// device. Then the generator is set back and the complete batch is fetched.
/// Whether any process has drawn is agreed upon for every batch of the first
/// pass.
template <typename Dataset, typename Request>
class RowFetchingDataset final : public Dataset {
 public:
  using Batch = typename Dataset::BatchType;

  RowFetchingDataset(
      Dataset&& dataset,
      std::shared_ptr<FetchPlan<Request>> plan)
      : Dataset(std::move(dataset)), plan_(std::move(plan)) {}

  // Overrides Dataset::get_batch; not marked so, for data sets whose get_batch
  // is not virtual also come here, and keep their own.
  Batch get_batch(typename Dataset::BatchRequestType request) {
    const accel::detail::WholeBatchGuard whole_batch;
    if (!plan_->batch) {
      return Dataset::get_batch(std::move(request));
    }
    if (!plan_->draws) {
      const accel::detail::GeneratorMark mark;
      Batch rows = Dataset::get_batch(std::move(request));
      const bool moved = mark.moved();
      plan_->draws = plan_->settled ? moved : accel::detail::on_any_process(moved);
      if (!plan_->draws) {
        return rows;
      }
      mark.restore();
    }
    return cut(Dataset::get_batch(plan_->batch->whole));
  }

 private:
  Batch cut(Batch batch) const {
    const BatchShare& share = plan_->batch->share;
    if constexpr (has_rows<Batch>::value) {
      return RowsOf<Batch>::take(
          batch, share.offset, share.rows(), share.global);
    } else {
      TORCH_CHECK(
          false,
          "The data set draws random numbers while it loads, so that every "
          "process has to load the complete batch of ",
          share.global,
          " samples and cut its own out, but its batch type (",
          c10::demangle_type<Batch>(),
          ") is not one that accel can cut. Specialise accel::data::RowsOf for "
          "it, load with workers, or load with torch::data::make_data_loader "
          "and split with accelerator.shard_batch.");
    }
  }

  std::shared_ptr<FetchPlan<Request>> plan_;
};

} // namespace accel::data
