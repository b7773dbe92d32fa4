#include "core/guarded_operation.h"

#include "core/failure_note.h"

#include <accel/detail/alone.h>

#include <c10/util/Exception.h>

namespace accel::detail {

std::string message_of(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    return c10_error->what_without_backtrace();
  }
  return error.what();
}

Operation GuardedOperations::begin(
    const char* name, const at::Tensor& tensor) const {
  if (const char* const region = AloneGuard::region()) {
    const std::string place = CallSite::here().describe();
    TORCH_CHECK(
        false,
        "accel: ",
        name,
        place.empty() ? "" : ", called at " + place + ",",
        " needs all processes at the same time, but this is inside of ",
        region,
        ". Call it outside, on all processes, and use the result there.");
  }
  return log->begin(channel, group, name, tensor);
}

std::string GuardedOperations::process() const {
  const int64_t number =
      group == nullptr ? rank : group->processes[static_cast<size_t>(rank)];
  return "process " + std::to_string(number) + " of " +
      std::to_string(world_size);
}

void GuardedOperations::run(
    const Operation& operation, const std::function<void()>& call) const {
  try {
    const OperationLog::Waiting waiting(*log, operation);
    call();
  } catch (const OutOfStep& error) {
    // Nobody is lost, and all say the same.
    TORCH_CHECK(false, "accel: ", error.what());
  } catch (const std::exception& error) {
    const std::string reason = message_of(error);
    if (const auto why = verdict(); !why.empty()) {
      TORCH_CHECK(
          false,
          "accel: ",
          operation.describe(),
          " failed on ",
          process(),
          ": ",
          why);
    }
    // At once: the launcher does not wait for long.
    note_lost_peer(operation.describe() + ": " + reason);
    const std::string news = failure_news();
    const std::string site = channel == Channel::kMain
                                 ? operation.site.describe()
                                 : "forward or backward";
    TORCH_CHECK(
        false,
        "accel: ",
        operation.describe(),
        " failed on ",
        process(),
        site.empty() ? "" : ", called at " + site,
        ": ",
        news.empty() ? "another process has probably ended, or has called "
                       "something else; look at its output"
                     : news,
        " (",
        reason,
        ")");
  }
}

} // namespace accel::detail
