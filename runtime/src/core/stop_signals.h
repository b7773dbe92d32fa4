#pragma once

namespace accel::detail {

/// From now on SIGTERM and SIGUSR1 are remembered, each where the program has
/// no handler of its own, instead of ending it. A second one that comes more
/// than two seconds later ends the process all the same.
void take_stop_signals();

/// Whether one has come since `take_stop_signals`.
bool stop_signal_came();

/// Gives the signals back. What has come is forgotten.
void give_stop_signals_back();

} // namespace accel::detail
