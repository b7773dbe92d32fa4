#pragma once

#include <accel/gradient_state.h>

#include <memory>
#include <optional>

namespace accel::data {

/// What the loader knows about the batch that it fetches next. Shared by the
/// loader and its data set; used by the main thread only.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Request>
struct FetchPlan {
  /// The samples of this process, of the batch that is requested whole. Empty
  /// where batches are not distributed.
  std::optional<Request> rows;
  /// The data set draws random numbers, or may draw some that nobody sees
  /// (`load_whole_batches`): every process fetches complete batches, as one
  /// device does, and keeps its rows.
  bool draws = false;
  /// A complete pass has shown that the data set does not draw.
  bool settled = false;
  /// The loader's.
  std::shared_ptr<DataLoaderState> state;
};

} // namespace accel::data
