//===- Frontend.h - From a file name to a parsed unit -----------*- C++ -*-===//
//
// Finds out how a file is compiled, parses it quickly, and hands the parsed
// unit to a callback. What LibTorch's headers declare is precompiled once per
// set of flags and kept in a cache; see PrefixCache.h.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_FRONTEND_H
#define ACCEL_MIGRATE_FRONTEND_H

#include "accel/migrate/Change.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace clang {
class ASTContext;
} // namespace clang

namespace accel::migrate {

/// Texts that stand for the files on the disk: real path to content.
using TextOverlay = std::map<std::string, std::string>;

struct FrontendOptions {
  /// Folder with a compile_commands.json (-p), or empty: one is looked for
  /// from the file's folder upwards.
  std::string BuildDir;
  /// The flags behind `--`; they come before any compile_commands.json.
  std::optional<std::vector<std::string>> Flags;
  /// Clang's resource folder (--resource-dir), or empty: looked for.
  std::string ResourceDir;
  /// Folder that holds accel/accel.h, or empty: looked for.
  std::string AccelIncludeDir;
  /// False: nothing is read from or written to the cache.
  bool UseCache = true;
  /// The folder of the cache, or empty: the person's.
  std::string CacheDir;
  /// Only files below this folder may be changed; empty: those of the project
  /// that a file belongs to.
  std::string InRoot;
  /// The running executable; things are looked for beside it.
  std::string Executable;
  /// Called before LibTorch's headers are precompiled, which takes a while.
  std::function<void()> OnPrecompile;
};

/// Seconds of wall time, by phase.
struct ParseTimes {
  double Precompile = 0; ///< Making the cached prefix, when it was not there.
  double Parse = 0;
  double Callback = 0;
};

/// What became of one unit.
struct ParsedUnit {
  enum class Status {
    Parsed,
    /// It has errors, LibTorch is missing, or the command is of no use.
    Rejected,
    /// Clang or the callback crashed.
    Crashed,
  };
  Status State = Status::Rejected;
  /// Says why, unless the state is `Parsed`.
  Finding Problem;
  /// Things to know about a unit that was parsed.
  std::vector<Finding> Notes;
  /// All files of the user's own (not of the system, LibTorch or accel) that
  /// were read, and their texts as they were read.
  TextOverlay UserFiles;
  /// Parts of these that conditions of the preprocessor left out.
  std::vector<TextRange> Unseen;
  /// Whether the LibTorch part came from the cache.
  bool UsedPrefix = false;
  /// Whether accel's headers did, too.
  bool UsedAccelPrefix = false;
  ParseTimes Times;
};

/// Called with a unit that has no errors, with the traversal scope set to the
/// user's own declarations. Nothing of the unit outlives the call.
using UnitCallback = llvm::function_ref<void(clang::ASTContext &)>;

/// How much of what a unit instantiates is read.
enum class Thoroughness {
  /// All that is asked for in the user's code, and of what the bodies of the
  /// standard library's and LibTorch's templates ask for what may lead to a
  /// template of the user's (`std::for_each` with a generic lambda). What is
  /// left out says nothing about the user's code, unless it does not compile.
  Analysis,
  /// These bodies, too, as a compiler does; what is known to compile excepted.
  Complete,
  /// The same for what a program was made into: of what is made of the user's
  /// types only what accel's headers have a part in, and what the program did
  /// not ask for before. The rest is taken to compile as it did.
  Result,
};

/// One object may parse in several threads at a time.
class Frontend {
public:
  /// Fails when Clang's builtin headers are nowhere to be found or
  /// `BuildDir` has no usable compile_commands.json.
  static llvm::Expected<std::unique_ptr<Frontend>> create(FrontendOptions);
  ~Frontend();

  /// Parses a source, with `Overlay` in place of what is on the disk, or several
  /// of a program as one unit, in the order given, as if a file included them
  /// all: every body that the program has is then to be seen. `Main` is one of
  /// several (real paths), whose compile command is used; a single source has
  /// its own. Rejects sources that do not mean the same together as each by
  /// itself.
  ParsedUnit parse(llvm::StringRef Main, llvm::ArrayRef<std::string> Sources,
                   const TextOverlay &Overlay, Thoroughness How,
                   UnitCallback OnUnit);

  /// Whether a file (by real path) belongs to the project that `Main`, which
  /// was parsed, belongs to, so that it may be changed. The project of a file is
  /// the nearest folder above it that holds .git, or else the folder it is in;
  /// generated files in its build folder are excluded.
  bool mayEdit(llvm::StringRef RealPath, llvm::StringRef Main) const;
  /// Whether that is so for any file that was parsed.
  bool mayEdit(llvm::StringRef RealPath) const;

private:
  class Impl;
  explicit Frontend(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> TheImpl;
};

/// The path without symlinks, or the absolute path if there is no such file.
std::string realPath(llvm::StringRef Path);

/// The project of a file (by real path): the nearest folder above that is a git
/// work tree; else the topmost of the folders above that have a CMakeLists.txt
/// without a gap, beginning with its own or the one above; else its own folder.
/// The flag says whether there was such a mark.
std::pair<std::string, bool> projectOf(llvm::StringRef RealPath);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_FRONTEND_H
