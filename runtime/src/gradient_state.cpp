#include <accel/gradient_state.h>

#include <accel/data/whole_batch.h>

#include <algorithm>

namespace accel {
namespace {

/// Set in the thread that runs the loop. Data workers and other threads work on
/// complete batches, and must not look at what the loop's thread changes.
thread_local bool runs_the_loop = false;

} // namespace

GradientState& GradientState::get() {
  static GradientState state;
  return state;
}

std::shared_ptr<DataLoaderState> GradientState::active() const {
  while (!loaders_.empty()) {
    if (auto loader = loaders_.back().lock()) {
      return loader;
    }
    loaders_.pop_back();
  }
  return nullptr;
}

bool GradientState::end_of_dataloader() const {
  const auto loader = active();
  return loader && loader->end_of_dataloader;
}

bool GradientState::uneven() const {
  const auto loader = active();
  return loader && loader->uneven;
}

bool GradientState::ghost() const {
  const auto loader = active();
  return loader && loader->ghost;
}

int64_t GradientState::remainder() const {
  const auto loader = active();
  return loader ? loader->remainder : -1;
}

bool GradientState::in_dataloader() const {
  return active() != nullptr;
}

std::optional<BatchShare> GradientState::share() const {
  if (!runs_the_loop || detail::WholeBatchGuard::active()) {
    return std::nullopt;
  }
  const auto loader = active();
  // A loader that began after `set_share` (an evaluation inside the training
  // step) is the innermost of the two.
  if (explicit_share_ && loaders_.size() <= explicit_depth_) {
    return explicit_share_;
  }
  return loader ? loader->share : std::nullopt;
}

void GradientState::set_share(BatchShare share) {
  runs_the_loop = true;
  active(); // drops loaders that are gone, so that the depth is exact
  explicit_depth_ = loaders_.size();
  explicit_share_ = share;
  last_share_ = share;
}

void GradientState::clear_share() {
  explicit_share_.reset();
}

void GradientState::enter(const std::shared_ptr<DataLoaderState>& loader) {
  runs_the_loop = true;
  leave(loader);
  loaders_.push_back(loader);
}

void GradientState::leave(const std::shared_ptr<DataLoaderState>& loader) {
  loaders_.erase(
      std::remove_if(
          loaders_.begin(),
          loaders_.end(),
          [&](const std::weak_ptr<DataLoaderState>& other) {
            return other.expired() || other.lock() == loader;
          }),
      loaders_.end());
}

void GradientState::hand_out(const std::shared_ptr<DataLoaderState>& loader) {
  runs_the_loop = true;
  ++loader->batches;
  loader->body_ended = false;
  last_share_ = loader->share;
  const auto is_loader = [&](const std::weak_ptr<DataLoaderState>& other) {
    return other.lock() == loader;
  };
  if (std::none_of(loaders_.begin(), loaders_.end(), is_loader)) {
    loaders_.push_back(loader);
  }
}

GradientState::Body GradientState::begin_body() {
  Body body;
  if (const auto loader = active()) { // drops loaders that are gone
    body.loader = loader;
    body.batch = loader->batches;
    ++loader->open_bodies;
  }
  body.depth = loaders_.size();
  body.explicit_share = explicit_share_;
  body.explicit_depth = explicit_depth_;
  return body;
}

void GradientState::close_body(const Body& body) {
  const auto loader = body.loader.lock();
  // A pass that has begun since counts anew.
  if (loader && loader->open_bodies > 0) {
    --loader->open_bodies;
  }
}

void GradientState::end_body(const Body& body) {
  const auto loader = body.loader.lock();
  const bool advanced = loader && loader->batches != body.batch;
  size_t keep = std::min(body.depth, loaders_.size());
  for (size_t i = 0; loader && !advanced && i < keep; ++i) {
    if (loaders_[i].lock() == loader) {
      keep = i;
    }
  }
  for (size_t i = loaders_.size(); i > keep; --i) {
    if (const auto ended = loaders_[i - 1].lock()) {
      ended->body_ended = true;
      last_body_ = ended;
    }
  }
  loaders_.resize(keep);
  explicit_share_ = body.explicit_share;
  explicit_depth_ = body.explicit_depth;
}

bool GradientState::between_batches() const {
  const auto last = last_body_.lock();
  return last && last->body_ended && !share();
}

void GradientState::reset() {
  *this = GradientState();
}

} // namespace accel
