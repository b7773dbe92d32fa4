#pragma once

namespace accel {

/// What a program returns from `main` when it was asked to stop, has saved its
/// state, and wants to be started again (EX_TEMPFAIL of sysexits.h):
///
///     if (accelerator.stop_requested()) {
///       accelerator.save_state();
///       return accel::kExitStopped;
///     }
///
/// `accel launch` returns it too, and makes no restart then.
constexpr int kExitStopped = 75;

} // namespace accel
