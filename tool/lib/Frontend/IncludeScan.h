//===- IncludeScan.h - Does a file include LibTorch? ------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_INCLUDESCAN_H
#define ACCEL_LIB_FRONTEND_INCLUDESCAN_H

#include "CompileCommands.h"

namespace accel::migrate {

/// Whether the text of a file or of a header that it includes (next to it or in
/// the command's -I folders) mentions <torch/torch.h>. A quick look, without a
/// preprocessor, that decides whether the precompiled form is worth trying.
bool mentionsTorch(llvm::StringRef File, const UnitCommand &Command,
                   const TextOverlay &Overlay);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INCLUDESCAN_H
