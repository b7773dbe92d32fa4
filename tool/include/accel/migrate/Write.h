//===- Write.h - Migrated files on the disk, and back -----------*- C++ -*-===//
//
// A file is replaced by a new one that was written beside it, so that at any
// moment it is the old or the new one, never a part. Before the first file is
// replaced, a manifest with the originals is on the disk, so that `undo` also
// takes back what a run that was killed has done:
//
//   DIR/.accel/undo/NNNN.json   DIR: the common folder of the files
//
//   { "format": 1, "tool": "accel-migrate 0.1.0", "root": "../..",
//     "files": [ { "path": "train.cpp", "before": SHA-256, "after": SHA-256,
//                  "original": base64 } ] }
//
// Paths are relative to the root, which is relative to the manifest, so that a
// project can be moved. In a folder named by --state-dir the root is absolute.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_WRITE_H
#define ACCEL_MIGRATE_WRITE_H

#include "accel/migrate/Edit.h"

namespace accel::migrate {

/// Replaces all files, or none: what was replaced before an error is put back.
/// Fails if a file is not what `Before` says, so that nothing is lost that a
/// person typed in the meantime. Permissions stay. `StateDir` empty: see above.
llvm::Error writeInPlace(llvm::ArrayRef<FileEdit> Files,
                         llvm::StringRef StateDir);

/// Writes the new texts below `OutRoot`, at their places relative to `Root`.
llvm::Error writeTree(llvm::ArrayRef<FileEdit> Files, llvm::StringRef Root,
                      llvm::StringRef OutRoot);

/// Whether a file with this name could be written, as far as that can be told
/// without doing it.
llvm::Error checkOutput(llvm::StringRef Path);

/// Writes a file of the tool's own. What is no regular file (a pipe, a device)
/// is written to, not replaced.
llvm::Error writeOutput(llvm::StringRef Path, llvm::StringRef Text);

/// The deepest folder that holds all files (real paths).
std::string commonFolder(llvm::ArrayRef<std::string> Files);

struct UndoResult {
  std::vector<std::string> Restored;  ///< Real paths.
  std::vector<std::string> Unchanged; ///< Are as they were before already.
  std::vector<Finding> Refusals;     ///< If any, nothing was restored.
};

/// Takes back the last migration that has a manifest in `StateDir`, or, if that
/// is empty, in .accel/undo of the current folder or the nearest one above it.
/// With `Files`, the last one that changed these, and only for these. An error
/// means I/O, or that there is nothing to undo (std::errc::no_such_file...).
llvm::Expected<UndoResult> undo(llvm::ArrayRef<std::string> Files,
                                llvm::StringRef StateDir);

/// If the file is as the last migration of it left it: the originals of the
/// files that were migrated with it and are so too, by real path. Else nothing.
std::map<std::string, std::string> originalsOf(const std::string &File,
                                               llvm::StringRef StateDir);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_WRITE_H
