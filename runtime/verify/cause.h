#pragma once

#include <string>

#include "trace_compare.h"

namespace accel::verify {

/// What probably made two runs part, and where docs/verify.md says more.
struct Cause {
  /// A sentence; empty where the data show nothing.
  std::string text;
  /// The heading in docs/verify.md, as in its link.
  std::string anchor;
};

/// Looks at what was recorded around the first difference. `comparison.first`
/// is set; `processes` ran the migrated program.
Cause find_cause(
    const Trace& original,
    const Trace& migrated,
    const TraceComparison& comparison,
    int processes);

} // namespace accel::verify
