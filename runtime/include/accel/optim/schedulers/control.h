#pragma once

#include <accel/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {

/// What a checkpoint needs of a scheduler. Those that live are listed in the
/// order in which they were made; by its place there a resumed run knows one again.
class ACCEL_API SchedulerControl {
 public:
  SchedulerControl();
  SchedulerControl(const SchedulerControl&);
  SchedulerControl& operator=(const SchedulerControl&);
  virtual ~SchedulerControl();

  /// Another one saves this one's state with its own.
  void leave_to_another();

  virtual std::string scheduler_name() const = 0;
  virtual std::string save_scheduler() const = 0;
  /// Throws, and changes nothing, where `state` is not that of such a
  /// scheduler.
  virtual void load_scheduler(const std::string& state) = 0;
};

ACCEL_API const std::vector<SchedulerControl*>& living_schedulers();

} // namespace accel::detail
