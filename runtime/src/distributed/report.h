#pragma once

#include "core/call_site.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace accel::distributed {

/// How an operator was done.
enum class Way {
  /// Each process worked on its part, and nothing was communicated.
  kInParts,
  /// The same, with a gathering or a reduction.
  kInPartsWithTraffic,
  /// Arguments were gathered, and every process did all of it.
  kWhole,
  /// All arguments were plain: every process did all of it, nothing moved.
  kPlain,
  /// The same, where a data set makes a batch.
  kLoading,
  /// The same, where an optimizer updates parameters.
  kUpdating,
};

/// One operator call that was looked at.
struct ReportedCall {
  c10::OperatorHandle op;
  Way way;
  /// Without `waited`, in which other processes of the host had not come as far.
  int64_t nanoseconds;
  int64_t waited = 0;
  int64_t collectives = 0;
  int64_t bytes = 0;
  /// Whether the operator has a rule, which then knew no way.
  bool has_rule = false;
};

/// Where the time of the operators goes (ACCEL_PLACEMENT_REPORT). One for the
/// program; may be used from several threads.
class PlacementReport {
 public:
  static PlacementReport& instance();

  /// Counts a call. For those that communicate or run whole, `site` is where,
  /// and `arguments` describes the first one of each place.
  void add(const ReportedCall& call);
  template <typename Describe>
  void add(
      const ReportedCall& call,
      const accel::detail::CallSite& site,
      Describe&& describe) {
    if (std::string* text = add_at(call, site)) {
      *text = describe();
    }
  }

  /// For people.
  void print(std::ostream& out);
  /// The same as JSON.
  void print_json(std::ostream& out);
  /// Prints to stderr, or writes the file of `watch().report_file`, once; where
  /// the program ends. Nothing where no operator was seen, unless `expect` was
  /// called.
  void finish();

  /// How many processes share the work, for the heading.
  void set_processes(int64_t processes);
  /// A batch of so many rows was shared out.
  void add_batch(int64_t rows);
  /// What runs until `end_step` is a training step, in whatever thread: it is
  /// counted beside the whole program.
  void begin_step();
  void end_step();
  /// This process reports for so many, also that there was nothing to report.
  void expect(int64_t processes);

 private:
  PlacementReport();
  struct State;
  /// Where the description of a new place is to be written; null where it is
  /// known.
  std::string* add_at(
      const ReportedCall& call,
      const accel::detail::CallSite& site);
  State* state_;
};

} // namespace accel::distributed
