// The smallest program of a user of accel, built in each of the ways that
// docs/launching.md promises.
#include <accel/accel.h>

#include <string>

int main() {
  accel::Accelerator accelerator;
  auto sum = accelerator.reduce(torch::ones({1}), "sum").item<int64_t>();
  accelerator.print("processes: " + std::to_string(sum));
}
