//===- Surroundings.h - Where things are on this machine --------*- C++ -*-===//

#ifndef ACCEL_LIB_FRONTEND_SURROUNDINGS_H
#define ACCEL_LIB_FRONTEND_SURROUNDINGS_H

#include "accel/migrate/Frontend.h"

namespace accel::migrate {

/// A LibTorch on the disk.
struct LibTorch {
  std::string Root; ///< Holds include/.
  unsigned Major = 0, Minor = 0;

  /// The C++ standard that its headers need: 2.15's refuse C++17.
  llvm::StringRef languageStandard() const;
  /// What a compile command needs, as -isystem arguments.
  std::vector<std::string> includeArguments() const;
};

/// What the front end needs besides the user's files.
struct Surroundings {
  /// Clang's builtin headers (include/stddef.h); always there.
  std::string ResourceDir;
  /// Holds accel/accel.h; empty when the runtime's headers are nowhere.
  std::string AccelIncludeDir;
  /// Headers that were precompiled when accel was built or installed; there may
  /// be none.
  std::string PrecompiledDir;
  /// Used for files whose own flags do not reach a LibTorch.
  std::optional<LibTorch> Torch;
  /// Why there is none although the environment names one.
  std::string TorchProblem;

  /// Looks at the options, the environment (ACCEL_MIGRATE_RESOURCE_DIR,
  /// ACCEL_LIBTORCH), beside the executable, and at what the tool was
  /// configured with, in this order. Fails without a resource folder.
  static llvm::Expected<Surroundings> find(const FrontendOptions &Options);
};

} // namespace accel::migrate

#endif // ACCEL_LIB_FRONTEND_SURROUNDINGS_H
