#include "distributed/unit_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace accel::distributed {

void UnitOrder::use(Unit* unit, bool backward) {
  if (!now_.empty() && backward == backward_ && now_.back() == unit) {
    return;
  }
  if (now_.empty() || backward != backward_ || now_.size() >= kLongest) {
    end_pass();
    backward_ = backward;
    restart(unit);
    return;
  }
  if (unit == now_.front()) {
    if (like_ != nullptr && like_->size() == now_.size()) {
      end_pass();
      restart(unit);
      return;
    }
    if (like_ == nullptr && !first_comes_again_) {
      before_ = passes_[{backward_, unit}] = std::exchange(now_, {});
      restart(unit);
      return;
    }
  }
  now_.push_back(unit);
  if (like_ == nullptr) {
    return;
  }
  const size_t at = now_.size() - 1;
  if (at >= like_->size() || (*like_)[at] != unit) {
    like_ = nullptr;
    if (!before_.empty()) {
      now_.insert(now_.begin(), before_.begin(), before_.end());
      before_.clear();
      first_comes_again_ = true;
    }
  } else if (now_.size() == like_->size()) {
    before_.clear();
  }
}

void UnitOrder::restart(Unit* unit) {
  now_.assign(1, unit);
  const auto found = passes_.find({backward_, unit});
  like_ = found == passes_.end() ? nullptr : &found->second;
}

Unit* UnitOrder::next() const {
  return like_ != nullptr && now_.size() < like_->size() ? (*like_)[now_.size()]
                                                         : nullptr;
}

void UnitOrder::end_pass() {
  like_ = nullptr;
  before_.clear();
  first_comes_again_ = false;
  if (!now_.empty()) {
    const Key key{backward_, now_.front()};
    passes_[key] = std::exchange(now_, {});
  }
}

void UnitOrder::forget(Unit* unit) {
  // An order without one of its units is none.
  const auto has = [unit](const Pass& pass) {
    return std::find(pass.begin(), pass.end(), unit) != pass.end();
  };
  if (has(now_) || has(before_)) {
    now_.clear();
    before_.clear();
  }
  like_ = nullptr;
  for (auto one = passes_.begin(); one != passes_.end();) {
    one = has(one->second) ? passes_.erase(one) : std::next(one);
  }
}

} // namespace accel::distributed
