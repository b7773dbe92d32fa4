#pragma once

#include <accel/detail/communicator.h>
#include <accel/state.h>

#include "core/world.h"

#include <memory>

namespace accel::detail {

/// What the Accelerators of this program share: the state, and the connections to
/// the other processes. Made by the first
/// Accelerator, ended by the last.
class Runtime {
 public:
  /// Every process must call it. Throws where the environment is incomplete,
  /// the processes cannot meet, or their options differ.
  explicit Runtime(const ResolvedOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The one that exists, or null.
  static std::shared_ptr<Runtime> get();
  /// The one that exists; throws where there is none.
  static Runtime& require();

  /// The one that exists, whose options must be `options`, or a new one.
  static std::shared_ptr<Runtime> share(const ResolvedOptions& options);

  const AcceleratorState& state() const {
    return *state_;
  }
  Communicator& communicator(Channel channel) {
    return world_->communicator(channel);
  }

  /// Ends everything. `orderly`: waits a bounded time for the other processes;
  /// otherwise cuts the connections at once.
  void end(bool orderly) noexcept;

 private:
  void check_options_agree();

  std::unique_ptr<World> world_;
  std::unique_ptr<AcceleratorState> state_;
};

} // namespace accel::detail
