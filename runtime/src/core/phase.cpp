#include <accel/detail/phase.h>

#include <utility>

namespace accel::detail {

namespace {
thread_local Phase phase_of_thread = Phase::kTraining;
} // namespace

PhaseScope::PhaseScope(Phase phase)
    : previous_(std::exchange(phase_of_thread, phase)) {}

PhaseScope::~PhaseScope() {
  phase_of_thread = previous_;
}

Phase PhaseScope::current() {
  return phase_of_thread;
}

} // namespace accel::detail
