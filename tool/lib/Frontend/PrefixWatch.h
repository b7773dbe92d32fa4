//===- PrefixWatch.h - Whether a precompiled prefix means the same -*- C++ -*-//

#ifndef ACCEL_MIGRATE_LIB_FRONTEND_PREFIXWATCH_H
#define ACCEL_MIGRATE_LIB_FRONTEND_PREFIXWATCH_H

#include "clang/Lex/PPCallbacks.h"

#include <functional>
#include <memory>

namespace accel::migrate {

class UserLocations;

enum class PrefixPart { All, OnlyAccel };
using PrefixMentions = std::function<bool(llvm::StringRef Name, PrefixPart Part)>;

/// Watches what stands before the first include of what is precompiled:
/// LibTorch, or accel where the prefix `HasAccel`. `Fits` becomes true there,
/// unless something before it could change what the prefix means. `Mentions`
/// says whether the headers of the prefix, or only accel's, have a name in them:
/// what stands between the two includes means nothing to LibTorch. accel's headers come
/// first in what is compiled so, before headers of the user's that stand before them;
/// they name nothing that is not theirs, LibTorch's or the standard library's.
std::unique_ptr<clang::PPCallbacks>
watchPrefix(const clang::SourceManager &SM, const clang::LangOptions &LangOpts,
            UserLocations &User, bool HasAccel,
            PrefixMentions Mentions, bool &Fits);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_FRONTEND_PREFIXWATCH_H
