//===- IncludeScan.h - What a file includes ---------------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_INCLUDESCAN_H
#define ACCEL_LIB_FRONTEND_INCLUDESCAN_H

#include "CompileCommands.h"

namespace accel::migrate {

/// Whether the text of a file or of a header that it includes (next to it or in
/// the command's -I folders) mentions <torch/torch.h>. A quick look, without a
/// preprocessor, that decides whether the precompiled form is worth trying.
bool mentionsTorch(llvm::StringRef File, const UnitCommand &Command,
                   const TextOverlay &Overlay);

/// Whether the file includes <accel/accel.h> before anything of the user's: no
/// header of the user's own and no macro comes before it, as far as a quick look
/// at this file alone can tell.
bool beginsWithAccel(llvm::StringRef File, const TextOverlay &Overlay);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_INCLUDESCAN_H
