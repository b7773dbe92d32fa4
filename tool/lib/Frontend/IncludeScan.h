//===- IncludeScan.h - What a file includes ---------------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_INCLUDESCAN_H
#define ACCEL_LIB_FRONTEND_INCLUDESCAN_H

#include "CompileCommands.h"

namespace accel::migrate {

/// What stands between the delimiters of the include that `Line` is; else empty.
llvm::StringRef includedName(llvm::StringRef Line);

/// Whether the text of a file or of a header that it includes (next to it or in
/// the command's -I folders) mentions one of these headers (as in #include <…>). A
/// quick look, without a preprocessor, that decides whether the precompiled form is
/// worth trying.
bool mentionsHeader(llvm::StringRef File, const UnitCommand &Command,
                    const TextOverlay &Overlay,
                    llvm::ArrayRef<llvm::StringRef> Headers);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INCLUDESCAN_H
