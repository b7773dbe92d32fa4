//===- Html.h - Parts of the report page ------------------------*- C++ -*-===//

#ifndef ACCEL_LIB_REPORT_HTML_H
#define ACCEL_LIB_REPORT_HTML_H

#include "accel/migrate/Record.h"

#include <string>

namespace accel::migrate {

/// Text of any bytes as text of a page, or as a value in double quotes.
std::string escapeHtml(llvm::StringRef Text);

/// The anchor of a file, and of a line (from 1) of its old text.
std::string anchorOf(llvm::StringRef File);
std::string anchorOf(llvm::StringRef File, unsigned Line);

/// A link to the page of a rule or finding.
std::string pageLink(llvm::StringRef Name);

/// The sections of the files that change or that findings name a line of: old
/// and new text side by side, with reasons and findings at their lines.
std::string htmlSources(const RunRecord &Record);

} // namespace accel::migrate

#endif // ACCEL_LIB_REPORT_HTML_H
