#include <accel/accelerator.h>
#include <accel/detail/communicator.h>

#include <c10/util/Exception.h>

#include <exception>

namespace accel {

ProcessFirstGuard::ProcessFirstGuard(bool is_first) : is_first_(is_first) {
  if (!is_first_) {
    detail::communicator().barrier();
  }
  alone_.emplace(
      "main_process_first or local_main_process_first, which the processes run "
      "one after the other");
}

ProcessFirstGuard::~ProcessFirstGuard() {
  alone_.reset();
  if (!is_first_) {
    return;
  }
  try {
    detail::communicator().barrier();
  } catch (const std::exception& error) {
    // The next collective call tells the same as an exception.
    TORCH_WARN(
        "accel: the other processes could not be told that the first one is "
        "done: ",
        error.what());
  }
}

ProcessFirstGuard Accelerator::main_process_first() const {
  return ProcessFirstGuard(is_main_process());
}

ProcessFirstGuard Accelerator::local_main_process_first() const {
  return ProcessFirstGuard(is_local_main_process());
}

} // namespace accel
