#include <accel/data/loader_pass.h>

#include "core/read_values.h"

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

namespace accel::data {

LoaderPass::LoaderPass(
    std::string name,
    const torch::data::DataLoaderOptions& options)
    : name_(std::move(name)),
      options_batch_size_(static_cast<int64_t>(options.batch_size())),
      drop_last_(options.drop_last()),
      main_thread_(options.workers() == 0) {
  TORCH_CHECK(
      options.batch_size() > 0,
      "accel: make_data_loader was given the batch size 0. Give "
      "torch::data::DataLoaderOptions one of at least 1.");
}

void LoaderPass::skip_first_batches(int64_t batches) {
  TORCH_CHECK(
      batches >= 0,
      "accel: skip_first_batches was asked to skip ",
      batches,
      " batches.");
  skip_ = batches;
}

void LoaderPass::end() {
  in_pass_ = false;
  GradientState::get().leave(state_);
  state_->end_pass();
}

accel::detail::LoaderCursor LoaderPass::cursor(
    int64_t batches,
    uint64_t fingerprint) const {
  accel::detail::LoaderCursor cursor;
  cursor.sampler = name_;
  const auto sharding =
      in_pass_ ? sharding_ : accel::detail::sharding_options();
  cursor.batch_size = batch_size(sharding);
  cursor.drop_last = drop_last_;
  cursor.sharing = sharding.match_single_device ? "match_single_device"
      : sharding.split_batches                  ? "split_batches"
                                                : "batch_per_process";
  cursor.world = sharding.world;
  cursor.in_pass = in_pass_;
  if (in_pass_) {
    cursor.in_body = state_->open_bodies > 0;
    cursor.left = state_->left();
    cursor.batches = batches;
    cursor.fingerprint = fingerprint;
    cursor.generator = pass_generator_;
  }
  return cursor;
}

int64_t LoaderPass::batches_of(int64_t samples, bool evened) const {
  auto sharding = in_pass_ ? sharding_ : accel::detail::sharding_options();
  const int64_t size = batch_size(sharding);
  if (sharding.world == 1 || sharding.match_single_device) {
    return drop_last_ ? samples / size : (samples + size - 1) / size;
  }
  sharding.even_batches = sharding.even_batches || evened;
  return BatchSamplerShard<std::vector<size_t>>::batches(
      samples, sharding, size, drop_last_);
}

void LoaderPass::compare(uint64_t fingerprint) const {
  using accel::detail::ReadValues;
  if (sharding_.world > 1 && sharding_.match_single_device &&
      ReadValues::enabled()) {
    ReadValues::get().add_batch(name_, fingerprint, /*has_workers=*/!main_thread_);
  }
}

void LoaderPass::resume_at(accel::detail::LoaderCursor cursor) {
  skip_ = 0;
  resume_.reset();
  if (cursor.in_pass) {
    resume_ = std::move(cursor);
  }
}

} // namespace accel::data
