//===- PrefixUses.h - What LibTorch's headers ask for -----------*- C++ -*-===//
//
// A precompiled header is made with few flags and used with many. That is right
// as long as what was left out has no bearing on it: an include folder that
// holds none of the names that the headers include or look for, and a macro
// whose name they never mention. To know that, both are noted when the header
// is precompiled.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_LIB_FRONTEND_PREFIXUSES_H
#define ACCEL_LIB_FRONTEND_PREFIXUSES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <optional>
#include <set>
#include <string>

namespace clang {
class CompilerInstance;
class Preprocessor;
} // namespace clang

namespace accel::migrate {

class PrefixUses {
public:
  /// Notes what is included from now on. The object must outlive the compiler.
  void watch(clang::CompilerInstance &Compiler);
  /// Notes every name that was read. Names in branches that the preprocessor
  /// skipped are not among them; those stay skipped.
  void addIdentifiers(clang::Preprocessor &PP);

  llvm::Error write(llvm::StringRef Path) const;
  static std::optional<PrefixUses> read(llvm::StringRef Path);

  /// Whether a folder holds something that the headers include by name or test
  /// with __has_include, so that it matters whether it is searched. One that is
  /// searched last cannot hide what was found elsewhere.
  bool mayComeFrom(llvm::StringRef Dir, bool IsLast) const;
  bool mentions(llvm::StringRef Identifier) const;

private:
  class Watch;

  std::set<std::string> Found, Missing; ///< What was included or tested.
  llvm::StringSet<> Identifiers;
  /// Of what was read, instead of `Identifiers`: a name is seldom asked for.
  std::unique_ptr<llvm::MemoryBuffer> File;
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_PREFIXUSES_H
