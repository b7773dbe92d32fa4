#pragma once

#include "run.h"
#include "verdict.h"

namespace accel::verify {

/// Whether what was found is a difference of numbers, so that it is worth a run
/// to know how far rounding alone takes the original.
bool may_be_rounding(const Verdict& verdict, const Run& migrated);

/// Weighs what was found against `other`: what comes of comparing the original
/// with itself, computed with other instructions of the processor, which round
/// otherwise. Where that is apart as far, and as early, nothing can be said:
/// the verdict becomes `Outcome::kNotCompared`. Else a note says that rounding
/// does not explain it.
void weigh_rounding(const Verdict& other, Verdict& verdict);

} // namespace accel::verify
