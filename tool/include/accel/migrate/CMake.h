//===- CMake.h - The project's CMakeLists.txt -------------------*- C++ -*-===//
//
// A migrated program links accel. Finds the targets that a source belongs to by
// reading the CMakeLists.txt files from its folder upwards, without running
// CMake: what they compute is followed only as far as set(), file(GLOB) and the
// usual variables go.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_CMAKE_H
#define ACCEL_MIGRATE_CMAKE_H

#include "accel/migrate/Edit.h"

namespace accel::migrate {

struct CMakeResult {
  std::vector<FileEdit> Files;
  /// Sources whose target was not found, and the lines to add by hand.
  std::vector<Finding> Notes;
};

/// Makes the targets of `Sources` (real paths) link accel. `MayEdit` bounds the
/// search: the first CMakeLists.txt that it denies ends it.
CMakeResult linkAccel(llvm::ArrayRef<std::string> Sources,
                      llvm::function_ref<bool(llvm::StringRef)> MayEdit);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_CMAKE_H
