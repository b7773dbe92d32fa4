//===- MacroLeaks.h - Macros between sources of a program -------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_MACROLEAKS_H
#define ACCEL_LIB_FRONTEND_MACROLEAKS_H

#include "clang/Basic/SourceManager.h"
#include "clang/Lex/PPCallbacks.h"
#include "llvm/ADT/ArrayRef.h"

#include <memory>
#include <string>

namespace accel::migrate {

/// Watches sources (real paths) that are read one after the other. `Leaked`
/// becomes the name of a macro that one of them defines and that would make
/// another one mean something else than it does by itself.
std::unique_ptr<clang::PPCallbacks>
watchMacroLeaks(llvm::ArrayRef<std::string> Sources,
                const clang::SourceManager &SM, std::string &Leaked);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_MACROLEAKS_H
