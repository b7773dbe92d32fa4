//===- SourcesTogether.h - Several sources as one unit ----------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_SOURCESTOGETHER_H
#define ACCEL_LIB_FRONTEND_SOURCESTOGETHER_H

#include "UserScope.h"

#include "clang/Lex/PPCallbacks.h"
#include "clang/Lex/Preprocessor.h"

#include <memory>

namespace accel::migrate {

/// Watches sources (real paths) that are read one after the other. A header of
/// the project without an include guard is fine as long as each source reads it
/// once: what one of them has read is left out in those behind it. `Leaked`
/// becomes the name of a macro that one of them defines and that would make
/// another one mean something else than it does by itself.
std::unique_ptr<clang::PPCallbacks>
watchSourcesTogether(llvm::ArrayRef<std::string> Sources,
                     clang::Preprocessor &PP, UserLocations &User,
                     std::string &Leaked);

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_SOURCESTOGETHER_H
