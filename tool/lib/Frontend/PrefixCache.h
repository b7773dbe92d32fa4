//===- PrefixCache.h - LibTorch, precompiled --------------------*- C++ -*-===//
//
// Parsing <torch/torch.h> takes 12 s, loading it precompiled 0.1 s. On top of
// it lies <accel/accel.h> (0.3 s) for what has been migrated. One file of
// some 100 MB per set of flags lies in $XDG_CACHE_HOME/accel (~/.cache/accel).
// Its name is a hash of everything that decides what the headers mean: Clang's
// version, LibTorch's place, version and time, and the flags of the parser. The
// include folders and macros of a project are left out unless they matter
// (PrefixUses.h), so that most projects share one file. The least recently used
// files go when there are too many.
//
// Building or installing accel makes such files, too, for the flags that are most
// common (cmake/PrecompileForTool.cmake); they lie beside the tool. The cache gets
// a link to one that fits, so that a person's first run takes no longer than others.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_PREFIXCACHE_H
#define ACCEL_LIB_FRONTEND_PREFIXCACHE_H

#include "CompileCommands.h"
#include "PrefixUses.h"
#include "PrefixWatch.h"

#include <mutex>
#include <map>
#include <set>

namespace accel::migrate {

class PrefixCache {
public:
  /// `Named` is the folder to use; where it is empty, it is the person's, and
  /// `Installed` is looked into first. Unusable (`get` never succeeds) when the
  /// folder cannot be made. `OnPrecompile` is called before the work, which takes
  /// a while.
  PrefixCache(llvm::StringRef Named, std::string Installed,
              std::function<void()> OnPrecompile);

  /// The precompiled header that fits `Command`, made if it is not there.
  /// Several processes and threads may do this at once. Empty when it cannot
  /// be had.
  std::string get(const UnitCommand &Command);

  /// The one that has <accel/accel.h> of the folder `AccelDir`, too, on top of
  /// what `get` returns. Empty as well the first time in the run that has made that:
  /// to make the second one, too, pays where several files are read with it.
  std::string getWithAccel(const UnitCommand &Command,
                           const std::string &AccelDir);

  /// Whether the headers precompiled in `Path`, and those of LibTorch below it unless
  /// only accel's are asked for, have a name in them. True where that is not known.
  bool mentions(llvm::StringRef Path, llvm::StringRef Name, PrefixPart Part);

  /// Forgets a file that turned out to be of no use.
  void discard(llvm::StringRef Path);

private:
  /// What is to be precompiled.
  struct Prefix {
    std::string Header; ///< A file that includes it.
    std::string Base;   ///< The precompiled header below it, if any.
    /// The folders that it comes from (real paths).
    std::vector<std::string> Dirs;
  };
  std::string headerThatIncludes(llvm::StringRef Name, llvm::StringRef File);
  std::string find(const UnitCommand &Command, const Prefix &What);
  std::string make(const UnitCommand &Command, const Prefix &What);
  /// Makes `Path` of the cache a link to the file of that name in `Installed`.
  bool link(llvm::StringRef Path);
  /// What a precompiled header uses; null where that is not known.
  const PrefixUses *usesOf(const std::string &Path);

  std::function<void()> OnPrecompile;
  std::string Dir; ///< Empty if unusable.
  std::string Installed; ///< Only read; empty if there is none.
  std::string TorchHeader, AccelHeader;
  std::mutex Mutex; ///< Guards what is below.
  /// Results of `make`, by key, and of `find`, by header and flags.
  std::map<std::string, std::string> Made, Known;
  /// LibTorch's headers that were precompiled in this run, and how often accel's
  /// were asked for on top of them.
  std::map<std::string, unsigned> Fresh;
  std::set<std::string> Discarded; ///< Turned out to be of no use in it.
  std::map<std::string, std::string> Bases; ///< What lies below a file.
  std::map<std::string, std::optional<PrefixUses>> Read; ///< By file.
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_PREFIXCACHE_H
