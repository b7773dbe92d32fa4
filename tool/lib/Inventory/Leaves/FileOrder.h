//===- FileOrder.h - Files that are written and read --------------*- C++ -*-===//
//
// One process writes a file, all read: a file that the program wrote itself
// must be there, and whole, when another process opens it, and one that the
// program takes away must be there until all have read it.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H

#include "Code/ProgramIndex.h"

#include "accel/migrate/TrainingProgram.h"

#include <optional>
#include <vector>

namespace accel::migrate {

/// A file is opened, made or taken away.
struct FileUse {
  const clang::FunctionDecl *In = nullptr;
  const clang::Expr *Use = nullptr;
  const clang::Expr *Path = nullptr;
  bool Writes = false;
  /// Reads: the path as it is written, where the runtime can be asked to wait.
  std::optional<Spelled> Argument;
  bool InLoop = false;
  /// Where a data set loads a sample, which is another one on each process:
  /// nobody can wait there.
  bool InSamples = false;
  /// `torch::save`, behind which nobody goes on before it is done; `torch::load`.
  bool IsSave = false, IsLoad = false;
  /// Everything below the path, too.
  bool Below = false;
  /// Whether the file is there is asked, in this `if` where it is in one; quiet:
  /// nothing but output depends on it.
  bool Asks = false;
  const clang::IfStmt *AskedIn = nullptr;
  bool IsQuiet = false;
  /// The main process makes the file, takes it away, or puts another one in its
  /// place, in this statement; no path: it may be any file.
  const clang::Stmt *Moved = nullptr;
  bool TakesAway = false;
  /// A folder is made, by whichever process comes first, in this statement where it
  /// stands in a block: none may while the main one takes it away, or another one
  /// asks whether it is there.
  bool MakesFolder = false;
  const clang::Stmt *Makes = nullptr;
  FunctionId Here = 0;
  /// The statement stands in a block, and is not all of a branch without braces.
  bool HasBlock = true;
};

/// A use that may read the file that another use wrote.
struct ReadBack {
  const FileUse *Write;
  const FileUse *Read;
  /// For what is read in samples: the statement of main behind which all can wait
  /// for what is written; null where there is none.
  const clang::Stmt *Behind = nullptr;
};

/// All uses that may read what another use wrote, or ask for what another use
/// writes next, where it is not certain that the processes meet in between; each
/// once, with one of the uses that write. A question of `Uses` whether a file is
/// there stays quiet only where none of them depends on it.
std::vector<ReadBack> findReadBacks(const ProgramIndex &Index,
                                    llvm::MutableArrayRef<FileUse> Uses);

/// Where the processes have to wait for each other at a statement that moves
/// files: before it, since another one may read the file still, or ask whether it
/// is there, and behind it, since what is read then must be the new one, or gone.
struct MoveWaits {
  const FileUse *Move;
  bool Before, Behind;
};

/// The statements at which somebody has to wait. A question of `Uses` whether a
/// file is there stays quiet only where none of them depends on it.
std::vector<MoveWaits> findMoveWaits(const ProgramIndex &Index,
                                     llvm::MutableArrayRef<FileUse> Uses);

/// Folders before which all have to wait: another process may ask whether they are
/// there, and goes on as the answer says.
std::vector<const FileUse *>
findFolderWaits(const ProgramIndex &Index, llvm::MutableArrayRef<FileUse> Uses);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_FILEORDER_H
