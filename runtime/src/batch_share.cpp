#include <accel/batch_share.h>

#include <atomic>

namespace accel {
namespace {

std::atomic<bool> in_pairs = false;

} // namespace

bool BatchShare::keeps_pairs() {
  return in_pairs;
}

void BatchShare::keep_pairs(bool keep) {
  in_pairs = keep;
}

} // namespace accel
