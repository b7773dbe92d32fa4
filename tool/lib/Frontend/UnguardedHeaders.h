//===- UnguardedHeaders.h - Headers that every source may read --*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_UNGUARDEDHEADERS_H
#define ACCEL_LIB_FRONTEND_UNGUARDEDHEADERS_H

#include "clang/Lex/PPCallbacks.h"
#include "clang/Lex/Preprocessor.h"
#include "llvm/ADT/ArrayRef.h"

#include <functional>
#include <memory>
#include <string>

namespace accel::migrate {

/// A header of the project without an include guard is fine as long as each
/// source reads it once. Where sources (real paths) are read one after the
/// other, what one of them has read is left out in those behind it. `IsUsers`
/// tells the project's files from all others.
std::unique_ptr<clang::PPCallbacks> readUnguardedHeadersOnce(
    llvm::ArrayRef<std::string> Sources, clang::Preprocessor &PP,
    std::function<bool(clang::FileID)> IsUsers);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_UNGUARDEDHEADERS_H
