#pragma once

#include <string>

#include "verify.h"

namespace accel::verify {

/// The result as one HTML page that needs nothing else: no scripts, no other
/// files. Its text and style are templates/verify/report.html.in.
std::string make_report(const Result& result);

} // namespace accel::verify
