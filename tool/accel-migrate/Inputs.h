//===- Inputs.h - The files that are named on the command line --*- C++ -*-===//

#ifndef ACCEL_MIGRATE_INPUTS_H
#define ACCEL_MIGRATE_INPUTS_H

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace accel::migrate {

/// Replaces names by real paths, each once, and folders by the sources in them.
/// Says on the standard error what is neither; false then.
bool resolveFiles(std::vector<std::string> &Files);

/// Whether a file has such a line, the first being 1. Says on the standard error
/// what is wrong.
bool hasLine(llvm::StringRef File, unsigned Line);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_INPUTS_H
