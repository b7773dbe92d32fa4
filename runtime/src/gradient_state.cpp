#include <accel/gradient_state.h>

#include <algorithm>

namespace accel {
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

void GradientState::enter(const std::shared_ptr<DataLoaderState>& loader) {
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
  ++loader->batches;
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
  loaders_.resize(keep);
}

void GradientState::reset() {
  *this = GradientState();
}

} // namespace accel
