#pragma once

#include <accel/accelerator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace accel {

/// What several Accelerators of a program do not share; the rest is the
/// `detail::Runtime`'s.
struct Accelerator::Own {
  bool automatic_naming = false;
  int64_t total_limit = 0;
  std::string project_dir;
  std::vector<OptionInForce> options_in_force;
  int exceptions_at_start = 0;
  bool trigger = false;
};

} // namespace accel
