#include "core/guarded_operation.h"

#include "core/failure_note.h"

#include <c10/util/Exception.h>

namespace accel::detail {

std::string message_of(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    return c10_error->what_without_backtrace();
  }
  return error.what();
}

void GuardedOperations::run(
    const Operation& operation, const std::function<void()>& call) const {
  try {
    const OperationLog::Waiting waiting(*log, operation);
    call();
  } catch (const std::exception& error) {
    const std::string reason = message_of(error);
    if (const auto why = verdict(); !why.empty()) {
      TORCH_CHECK(
          false,
          "accel: ",
          operation.describe(),
          " failed on process ",
          rank,
          " of ",
          size,
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
        " failed on process ",
        rank,
        " of ",
        size,
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
