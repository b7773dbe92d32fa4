//===- Findings.h - The table of findings -----------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_FINDINGS_H
#define ACCEL_MIGRATE_FINDINGS_H

#include "accel/migrate/Change.h"

#include "llvm/ADT/StringRef.h"

namespace accel::migrate {

/// A row of Findings.def.
struct FindingKind {
  llvm::StringLiteral Id;
  Severity Level;
  llvm::StringLiteral Title; ///< Lower case, no full stop.
};

/// The row with this id, or null.
const FindingKind *findFindingKind(llvm::StringRef Id);

/// A finding with the severity that the table gives to `Id`, which must exist.
Finding makeFinding(llvm::StringRef Id, TextRange Range, std::string Message,
                    std::string Remedy = "");

/// Adds a finding, unless the same is said of that place already: units that share
/// a header, and the instantiations of a template, have the same to say.
void addOnce(std::vector<Finding> &Findings, Finding New);

/// By files, and from their beginnings to their ends.
void sortByPlace(std::vector<Finding> &Findings);

/// A page of docs/findings or docs/rules, compiled into the tool.
struct EmbeddedPage {
  const char *Name; ///< "ACL0001" or the rule's name.
  const char *Text; ///< Markdown.
};

/// All pages, ended by a null name.
extern const EmbeddedPage EmbeddedPages[];

/// The page with this name, in small or capital letters, or null.
const EmbeddedPage *findPage(llvm::StringRef Name);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_FINDINGS_H
