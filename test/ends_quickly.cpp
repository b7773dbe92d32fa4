// For programs that are written as a user's: linked into one, this ends it quickly
// (end_quickly.h), without a line in the program. With ACCEL_TEST_ENDS_FULLY it ends as
// ever: what a library that was loaded in front does at the end, is done then.

#include "end_quickly.h"

#include <cstdlib>

namespace {

// Before all objects of the program: so these are destroyed as ever.
__attribute__((constructor(101))) void at_start() {
  if (std::getenv("ACCEL_TEST_ENDS_FULLY") == nullptr) {
    accel::test::end_quickly();
  }
}

} // namespace
