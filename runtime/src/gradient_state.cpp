#include <accel/data/cursor.h>
#include <accel/gradient_state.h>

#include <algorithm>
#include <utility>

namespace accel {
namespace {

/// Of batches that are vectors of samples, so many tensors are looked at.
constexpr size_t kWatched = 64;

} // namespace

void DataLoaderState::end_pass() {
  const auto kept = bodies;
  *this = DataLoaderState();
  bodies = kept;
}

void DataLoaderState::watch(const at::Tensor& tensor) {
  if (tensor.defined() && batch.size() < kWatched) {
    batch.emplace_back(tensor.getIntrusivePtr());
  }
}

bool DataLoaderState::batch_is_gone() const {
  return !batch.empty() && open_bodies == 0 &&
      std::all_of(batch.begin(), batch.end(), [](const auto& tensor) {
           return tensor.expired();
         });
}

bool DataLoaderState::left() const {
  return batch_is_gone() && (body_closed || !trains_unguarded);
}

GradientState& GradientState::get() {
  static GradientState state;
  return state;
}

GradientState::Loader GradientState::innermost() const {
  while (!loaders_.empty()) {
    if (auto loader = loaders_.back().lock()) {
      return loader;
    }
    loaders_.pop_back();
  }
  return nullptr;
}

GradientState::Loader GradientState::active() const {
  for (auto weak = loaders_.rbegin(); weak != loaders_.rend(); ++weak) {
    auto loader = weak->lock();
    if (loader && !loader->batch_is_gone()) {
      return loader;
    }
  }
  return nullptr;
}

bool GradientState::end_of_dataloader() const {
  const auto loader = active();
  return loader && loader->end_of_dataloader;
}

bool GradientState::in_dataloader() const {
  return active() != nullptr;
}

bool GradientState::uneven() const {
  const auto loader = innermost();
  return loader && loader->uneven;
}

bool GradientState::ghost() const {
  const auto loader = innermost();
  return loader && loader->ghost;
}

int64_t GradientState::remainder() const {
  const auto loader = innermost();
  return loader ? loader->remainder : -1;
}

int64_t GradientState::remainder_of_last_batch() const {
  const auto loader = innermost();
  return loader && loader->end_of_dataloader ? loader->remainder : -1;
}

void GradientState::enter(const Loader& loader) {
  leave(loader);
  detail::note_pass();
  loader->begun = ++clock_;
  loaders_.push_back(loader);
}

void GradientState::leave(const Loader& loader) {
  loaders_.erase(
      std::remove_if(
          loaders_.begin(),
          loaders_.end(),
          [&](const std::weak_ptr<DataLoaderState>& other) {
            return other.expired() || other.lock() == loader;
          }),
      loaders_.end());
}

void GradientState::hand_out(const Loader& loader) {
  const auto before = std::exchange(loader->asked, ++clock_);
  ++loader->batches;
  loader->batch.clear();
  loader->open_bodies = 0;
  loader->body_closed = false;
  const auto own = std::find_if(
      loaders_.begin(),
      loaders_.end(),
      [&](const std::weak_ptr<DataLoaderState>& other) {
        return other.lock() == loader;
      });
  if (own == loaders_.end()) {
    loaders_.push_back(loader);
    return;
  }
  loaders_.erase(
      std::remove_if(
          own + 1,
          loaders_.end(),
          [&](const std::weak_ptr<DataLoaderState>& other) {
            const auto inner = other.lock();
            return !inner || inner->batch_is_gone() ||
                (before > 0 && (inner->begun > before || inner->asked < before));
          }),
      loaders_.end());
}

void GradientState::note_unguarded_backward() {
  if (const auto loader = innermost()) {
    loader->trains_unguarded = true;
  }
}

std::vector<GradientState::Loader> GradientState::loaders_of_body() const {
  std::vector<Loader> asked;
  for (const auto& weak : loaders_) {
    const auto loader = weak.lock();
    if (loader && loader->asked > last_body_ended_ &&
        (loader->bodies > 0 || !loader->batch_is_gone())) {
      asked.push_back(loader);
    }
  }
  std::vector<Loader> result;
  for (const auto& loader : asked) {
    const bool surrounds =
        std::any_of(asked.begin(), asked.end(), [&](const Loader& inner) {
          return inner->begun > loader->asked;
        });
    if (!surrounds) {
      result.push_back(loader);
    }
  }
  if (result.empty()) {
    if (const auto loader = active()) {
      result.push_back(loader);
    }
  }
  std::sort(
      result.begin(), result.end(), [](const Loader& a, const Loader& b) {
        return a->asked > b->asked;
      });
  return result;
}

bool GradientState::body_ends_pass() const {
  const auto loaders = loaders_of_body();
  return std::any_of(loaders.begin(), loaders.end(), [](const Loader& loader) {
    return loader->end_of_dataloader;
  });
}

GradientState::Body GradientState::begin_body() {
  Body body;
  for (const auto& loader : loaders_of_body()) {
    body.loaders.push_back({loader, loader->batches});
    ++loader->open_bodies;
    ++loader->bodies;
  }
  innermost(); // drops loaders that are gone
  body.depth = loaders_.size();
  return body;
}

void GradientState::close_body(const Body& body) {
  last_body_ended_ = ++clock_;
  for (const auto& [state, batch] : body.loaders) {
    const auto loader = state.lock();
    // A batch that was asked for inside of the body counts anew.
    if (loader && loader->batches == batch && loader->open_bodies > 0) {
      --loader->open_bodies;
      loader->body_closed = true;
    }
  }
}

void GradientState::end_body(const Body& body) {
  size_t keep = std::min(body.depth, loaders_.size());
  for (const auto& [state, batch] : body.loaders) {
    const auto loader = state.lock();
    const bool advanced = loader && loader->batches != batch;
    for (size_t i = 0; loader && !advanced && i < keep; ++i) {
      if (loaders_[i].lock() == loader) {
        keep = i;
      }
    }
  }
  loaders_.resize(keep);
}

void GradientState::reset() {
  *this = GradientState();
}

} // namespace accel
