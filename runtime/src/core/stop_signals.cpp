#include "core/stop_signals.h"

#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>

namespace accel::detail {
namespace {

constexpr std::array<int, 2> kSignals{SIGTERM, SIGUSR1};
/// A launcher and a batch system may both pass on the same request.
constexpr time_t kSameRequest = 2;

std::atomic<bool> came{false};
std::atomic<time_t> first{0};
bool taken = false;

time_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

/// Only async-signal-safe calls.
void remember(int signal) {
  if (!came.exchange(true)) {
    first = now();
  } else if (now() - first > kSameRequest) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

} // namespace

void take_stop_signals() {
  if (taken) {
    return;
  }
  taken = true;
  for (const int signal : kSignals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_DFL && (action.sa_flags & SA_SIGINFO) == 0) {
      action.sa_handler = remember;
      action.sa_flags = SA_RESTART;
      ::sigaction(signal, &action, nullptr);
    }
  }
}

bool stop_signal_came() {
  return came;
}

void give_stop_signals_back() {
  if (!taken) {
    return;
  }
  taken = false;
  for (const int signal : kSignals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == remember) {
      ::signal(signal, SIG_DFL);
    }
  }
  came = false;
}

} // namespace accel::detail
