#include <accel/accelerator.h>

#include "core/runtime.h"

#include <algorithm>
#include <exception>

namespace accel {
namespace {

std::vector<Accelerator*>& accelerators() {
  static std::vector<Accelerator*> list;
  return list;
}

} // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : runtime_(detail::Runtime::share(resolve(options))),
      exceptions_at_start_(std::uncaught_exceptions()) {
  accelerators().push_back(this);
}

Accelerator::~Accelerator() {
  auto& list = accelerators();
  list.erase(std::find(list.begin(), list.end(), this));
  if (list.empty()) {
    runtime_->end(
        /*orderly=*/std::uncaught_exceptions() == exceptions_at_start_);
  }
}

const AcceleratorState& Accelerator::state() const {
  return runtime_->state();
}

Accelerator& accelerator() {
  detail::Runtime::require();
  return *accelerators().front();
}

} // namespace accel
