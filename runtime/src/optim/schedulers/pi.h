// The constant of the schedulers that follow a cosine; C++17 has none.

#pragma once

namespace accel::optim {

constexpr double kPi = 3.14159265358979323846;

} // namespace accel::optim
