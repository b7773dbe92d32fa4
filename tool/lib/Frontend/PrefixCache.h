//===- PrefixCache.h - LibTorch, precompiled --------------------*- C++ -*-===//
//
// Parsing <torch/torch.h> takes 12 s, loading it precompiled 0.1 s. One file of
// some 100 MB per set of flags lies in $XDG_CACHE_HOME/accel (~/.cache/accel).
// Its name is a hash of everything that decides what the headers mean: Clang's
// version, LibTorch's place, version and time, and the flags of the parser. The
// include folders and macros of a project are left out unless they matter
// (PrefixUses.h), so that most projects share one file. The least recently used
// files go when there are too many.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_PREFIXCACHE_H
#define ACCEL_LIB_FRONTEND_PREFIXCACHE_H

#include "CompileCommands.h"

#include <mutex>

namespace accel::migrate {

class PrefixCache {
public:
  /// Unusable (`get` never succeeds) when no cache folder can be made.
  /// `OnPrecompile` is called before the work, which takes a while.
  explicit PrefixCache(std::function<void()> OnPrecompile);

  /// The precompiled header that fits `Command`, made if it is not there.
  /// Several processes and threads may do this at once. Empty when it cannot
  /// be had.
  std::string get(const UnitCommand &Command);

  /// Forgets a file that turned out to be of no use.
  void discard(llvm::StringRef Path);

private:
  std::string make(const UnitCommand &Command);

  std::function<void()> OnPrecompile;
  std::string Dir;    ///< Empty if unusable.
  std::string Header; ///< A header that includes <torch/torch.h>.
  std::mutex Mutex;   ///< Guards what is below.
  /// Results of `make`, by key, and of `get`, by flags.
  std::map<std::string, std::string> Made, Known;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_PREFIXCACHE_H
