//===- IncludeScan.h - What a file includes ---------------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_INCLUDESCAN_H
#define ACCEL_LIB_FRONTEND_INCLUDESCAN_H

#include "CompileCommands.h"

namespace accel::migrate {

/// The directive that a line is: "if", "ifndef", "endif"; empty for other
/// lines. `Rest` is what stands behind it.
llvm::StringRef directiveOf(llvm::StringRef Line, llvm::StringRef &Rest);

/// What stands between the delimiters of the include that `Line` is; else empty.
llvm::StringRef includedName(llvm::StringRef Line);

/// Which of the headers that there are precompiled the text of a file mentions, or of
/// a header that it includes (next to it or in the command's -I folders).
struct MentionedHeaders {
  bool Torch = false; ///< <torch/torch.h>
  bool Accel = false; ///< <accel/accel.h>
};

/// A quick look, without a preprocessor, that decides whether the precompiled form is
/// worth trying.
MentionedHeaders mentionedHeaders(llvm::StringRef File, const UnitCommand &Command,
                                  const TextOverlay &Overlay);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INCLUDESCAN_H
