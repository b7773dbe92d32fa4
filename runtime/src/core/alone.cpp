#include <accel/detail/alone.h>
#include <accel/detail/communicator.h>

namespace accel::detail {
namespace {

thread_local const char* current = nullptr;

} // namespace

AloneGuard::AloneGuard(const char* region) : previous_(current) {
  if (region != nullptr && distributed()) {
    current = region;
  }
}

AloneGuard::~AloneGuard() {
  current = previous_;
}

const char* AloneGuard::region() {
  return current;
}

} // namespace accel::detail
