#include "distributed/watch.h"

namespace accel::distributed {

struct Watched::State {};

Watch& watch() {
  static Watch watch;
  return watch;
}

Watched::Watched(
    const c10::OperatorHandle&,
    const OperatorInfo&,
    const torch::jit::Stack&,
    Axis&) {}
Watched::~Watched() = default;
void Watched::done(const torch::jit::Stack&, bool) {}
void place_at_random(
    const c10::OperatorHandle&,
    const OperatorInfo&,
    torch::jit::Stack&) {}

} // namespace accel::distributed
