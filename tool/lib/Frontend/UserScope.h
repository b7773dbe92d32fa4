//===- UserScope.h - Which files are the user's own -------------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_USERSCOPE_H
#define ACCEL_LIB_FRONTEND_USERSCOPE_H

#include "Surroundings.h"

#include "clang/Basic/SourceManager.h"
#include "llvm/ADT/DenseMap.h"

namespace accel::migrate {

/// The folders around one main file: what is read as the user's code, and what
/// may be changed.
class UserScope {
public:
  /// All paths are real paths. `Foreign` are folders of LibTorch, accel and
  /// Clang, which are nobody's project even inside of one. `InRoot`, if not
  /// empty, is the only folder in which files may be changed.
  UserScope(llvm::StringRef MainFile, std::vector<std::string> Foreign,
            llvm::StringRef BuildDir, llvm::StringRef InRoot);

  /// Whether a file is the user's code: in the project, or at least neither
  /// foreign nor part of the system.
  bool isUser(llvm::StringRef RealPath, bool IsSystemHeader) const;
  /// Whether a file belongs to the project, generated files excluded.
  bool mayEdit(llvm::StringRef RealPath) const;

private:
  bool isForeign(llvm::StringRef RealPath) const;

  std::string Project;
  std::string Fence; ///< The project, or what takes its place.
  std::vector<std::string> Foreign;
  std::string Generated; ///< The build folder; empty if the main file is there.
};

/// The real path of a file; empty for what is none.
llvm::StringRef realPathOf(clang::FileID File, const clang::SourceManager &SM);

/// Answers `isUser` for source locations; one per unit.
class UserLocations {
public:
  UserLocations(const UserScope &Scope) : Scope(Scope) {}

  /// Whether the place where a location was expanded is the user's.
  bool contains(clang::SourceLocation Loc, const clang::SourceManager &SM);
  bool contains(clang::FileID File, const clang::SourceManager &SM);

private:
  const UserScope &Scope;
  llvm::DenseMap<clang::FileID, bool> Known;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_USERSCOPE_H
