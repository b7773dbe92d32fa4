#pragma once

namespace accel::detail {

/// Whether this thread has computed a mean with class weights or an
/// `ignore_index` since it was last asked, whose denominator was counted over
/// all processes (class_losses.cpp). Such a loss may not be weighted by hand as
/// well.
bool take_counted_denominators();

} // namespace accel::detail
