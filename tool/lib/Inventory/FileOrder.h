//===- FileOrder.h - Files that are written and read --------------*- C++ -*-===//
//
// One process writes a file, all read: a file that the program wrote itself
// must be there, and whole, when another process opens it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_FILEORDER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_FILEORDER_H

#include "ProgramIndex.h"

namespace accel::migrate {

/// A file is opened.
struct FileUse {
  const clang::FunctionDecl *In = nullptr;
  const clang::Expr *Use = nullptr;
  const clang::Expr *Path = nullptr;
  bool Writes = false;
};

/// The first use that reads what may be a file that another use wrote, where it
/// is not certain that the reading comes first; null for both if there is none.
std::pair<const FileUse *, const FileUse *>
findReadBack(const ProgramIndex &Index, llvm::ArrayRef<FileUse> Uses);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_FILEORDER_H
