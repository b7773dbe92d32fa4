#include <accel/data/sharding.h>
#include <accel/data/place_batch.h>
#include <accel/detail/communicator.h>
#include <accel/gradient_state.h>

#include "core/runtime.h"

#include <ATen/ATen.h>

namespace accel::detail {
data::ShardingOptions sharding_options() {
  data::ShardingOptions sharding;
  if (const auto runtime = Runtime::get()) {
    const auto& state = runtime->state();
    sharding.rank = state.process_index();
    sharding.world = state.num_processes();
    if (sharding.world > 1) {
      for (const auto& axis : runtime->named_axes()) {
        sharding.mesh.push_back(
            {axis.size, axis.shared == parallel::Shared::kSamples,
             axis.shared == parallel::Shared::kPositions});
      }
    }
    sharding.match_single_device = state.match_single_device();
    sharding.split_batches = state.options().split_batches;
    sharding.even_batches = state.options().even_batches;
    sharding.dispatch_batches = state.options().dispatch_batches;
    sharding.load_whole_batches =
        sharding.match_single_device && state.options().load_whole_batches;
    if (const auto& joined = GradientState::get().join_uneven) {
      sharding.even_batches = joined->even_batches.value_or(sharding.even_batches);
      sharding.join_uneven = !sharding.even_batches;
    }
  }
  return sharding;
}

bool on_any_process(bool flag) {
  auto count = at::full({}, flag ? 1 : 0, at::kLong);
  communicator(Channel::kMain).all_reduce(count);
  return count.item<int64_t>() > 0;
}

} // namespace accel::detail
