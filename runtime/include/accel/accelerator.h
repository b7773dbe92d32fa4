#pragma once

#include <accel/export.h>
#include <accel/options.h>
#include <accel/state.h>

#include <memory>

namespace accel {

namespace detail {
class Runtime;
}

/// The program's way to the other processes; made at the top of `main`.
class ACCEL_API Accelerator {
 public:
  explicit Accelerator(AcceleratorOptions options = {});
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  const AcceleratorState& state() const;

 private:
  std::shared_ptr<detail::Runtime> runtime_;
  int exceptions_at_start_;
};

/// The program's Accelerator; throws where there is none.
ACCEL_API Accelerator& accelerator();

} // namespace accel
