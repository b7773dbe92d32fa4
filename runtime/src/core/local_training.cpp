#include <accel/detail/local_training.h>

#include "core/runtime.h"

#include <c10/util/Exception.h>

namespace accel::detail {

LocalTraining::LocalTraining() : runtime_(Runtime::get()) {
  if (runtime_ == nullptr || !runtime_->state().use_distributed()) {
    runtime_ = nullptr;
    return;
  }
  TORCH_CHECK(
      !runtime_->state().match_single_device(),
      "accel: LocalSGD trains a model on each process, on batches of its own. With "
      "match_single_device all processes train one model on one batch: leave one of "
      "the two out.");
  runtime_->begin_local_training();
}

LocalTraining::~LocalTraining() {
  if (runtime_ != nullptr && Runtime::get() == runtime_) {
    runtime_->end_local_training();
  }
}

} // namespace accel::detail
