#pragma once

#include <accel/data/fetch_plan.h>
#include <accel/data/generators.h>
#include <accel/data/place_batch.h>
#include <accel/detail/phase.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace accel::data {

/// Whether a data loader may put a class derived from `Dataset` in its place,
/// which overrides `get_batch`. Specialise it to `std::false_type` for a data
/// set that declares its `get_batch` final.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Dataset>
struct can_derive_from
    : std::bool_constant<
          !std::is_final_v<Dataset> &&
          std::is_move_constructible_v<Dataset>> {};

/// The data set of a loader without workers whose batches are distributed
/// tensors (`match_single_device`).
///
/// Where it loads sample by sample (`loads_rows`), it fetches this process's
/// samples and no others. Where the data set draws random numbers (augmentation
/// in `get`), that would make the processes' generators part, and the samples
/// would differ from those of one device. Then the generator is set back and the
/// complete batch is fetched. Whether any process has drawn is agreed upon for
/// every batch of the first pass.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Dataset, typename Request>
class RowFetchingDataset final : public Dataset {
 public:
  /// The data set's batch.
  using Batch = typename Dataset::BatchType;

  RowFetchingDataset(
      Dataset&& dataset,
      std::shared_ptr<FetchPlan<Request>> plan)
      : Dataset(std::move(dataset)), plan_(std::move(plan)) {}

  /// This process's part of the batch. Overrides `Dataset::get_batch`; not
  /// marked so, because data sets whose `get_batch` is not virtual also come
  /// here, and keep their own, which returns the whole batch.
  Batch get_batch(typename Dataset::BatchRequestType request) {
    const accel::detail::PhaseScope loading(accel::detail::Phase::kLoading);
    Batch batch = fetch(std::move(request));
    watch_batch(*plan_->state, batch);
    return batch;
  }

 private:
  Batch fetch(typename Dataset::BatchRequestType request) {
    if (!plan_->rows) {
      return Dataset::get_batch(std::move(request));
    }
    const auto n = static_cast<int64_t>(request.size());
    if constexpr (loads_rows<Dataset>::value && has_tensor_rows<Batch>::value) {
      if (!plan_->draws) {
        const accel::detail::GeneratorMark mark;
        Batch rows = Dataset::get_batch(*plan_->rows);
        const bool moved = mark.moved();
        plan_->draws =
            plan_->settled ? moved : accel::detail::on_any_process(moved);
        if (!plan_->draws) {
          return place_batch(std::move(rows), n, /*by_rows=*/true);
        }
        mark.restore();
      }
    }
    return place_batch(
        Dataset::get_batch(std::move(request)), n, /*by_rows=*/false);
  }

  std::shared_ptr<FetchPlan<Request>> plan_;
};

} // namespace accel::data
