//===- FileOrder.h - Files that are written and read --------------*- C++ -*-===//
//
// One process writes a file, all read: a file that the program wrote itself
// must be there, and whole, when another process opens it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H

#include "Code/ProgramIndex.h"

#include "accel/migrate/TrainingProgram.h"

#include <optional>
#include <vector>

namespace accel::migrate {

/// A file is opened.
struct FileUse {
  const clang::FunctionDecl *In = nullptr;
  const clang::Expr *Use = nullptr;
  const clang::Expr *Path = nullptr;
  bool Writes = false;
  /// Reads: the path as it is written, where the runtime can be asked to wait.
  std::optional<Spelled> Argument;
};

/// A use that may read the file that another use wrote.
struct ReadBack {
  const FileUse *Write;
  const FileUse *Read;
};

/// All uses that may read what another use wrote, where it is not certain that
/// the reading comes first; each once, with one of the uses that write.
std::vector<ReadBack> findReadBacks(const ProgramIndex &Index,
                                    llvm::ArrayRef<FileUse> Uses);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H
