#pragma once

#include <accel/gradient_state.h>

#include <optional>

namespace accel {

/// While it lives `share` counts as the batch that is being worked on; what was
/// counts again behind it. Without a share nothing changes.
class ShareGuard {
 public:
  ShareGuard(GradientState& state, const std::optional<BatchShare>& share)
      : state_(state),
        explicit_share_(state.explicit_share_),
        explicit_depth_(state.explicit_depth_),
        last_share_(state.last_share_) {
    if (share) {
      state_.set_share(*share);
    }
  }
  ~ShareGuard() {
    state_.explicit_share_ = explicit_share_;
    state_.explicit_depth_ = explicit_depth_;
    state_.last_share_ = last_share_;
  }
  ShareGuard(const ShareGuard&) = delete;
  ShareGuard& operator=(const ShareGuard&) = delete;

 private:
  GradientState& state_;
  std::optional<BatchShare> explicit_share_;
  size_t explicit_depth_;
  std::optional<BatchShare> last_share_;
};

} // namespace accel
