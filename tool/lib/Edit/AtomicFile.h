//===- AtomicFile.h - Files that are never torn -----------------*- C++ -*-===//

#ifndef ACCEL_LIB_EDIT_ATOMICFILE_H
#define ACCEL_LIB_EDIT_ATOMICFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace accel::migrate {

/// A new text for a file, on the disk beside it. `commit` puts it in the
/// file's place; without that it goes away.
class AtomicFile {
public:
  /// Writes and syncs the text. An existing file's owner and permissions are
  /// taken over, as far as that is allowed.
  static llvm::Expected<AtomicFile> create(llvm::StringRef Path,
                                           llvm::StringRef Text);
  AtomicFile(AtomicFile &&Other);
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  llvm::Error commit();

  /// Removes what runs that were killed have left beside the file.
  static void removeLeftovers(llvm::StringRef Path);

private:
  AtomicFile(std::string Path, std::string Temporary)
      : Path(std::move(Path)), Temporary(std::move(Temporary)) {}

  std::string Path;
  std::string Temporary; ///< Empty when there is nothing left to remove.
};

/// Keeps other runs away from a folder as long as it lives; a run that is
/// killed lets go of it.
class FolderLock {
public:
  /// Makes the folder if it is not there, and waits.
  static llvm::Expected<FolderLock> acquire(llvm::StringRef Folder);
  FolderLock(FolderLock &&Other);
  FolderLock &operator=(FolderLock &&) = delete;
  ~FolderLock();

private:
  explicit FolderLock(int Descriptor) : Descriptor(Descriptor) {}
  int Descriptor;
};

/// Makes what was put into a folder survive a power failure; a file system that
/// cannot do it is none of our business.
void syncFolder(llvm::StringRef Folder);

/// create and commit.
llvm::Error writeAtomically(llvm::StringRef Path, llvm::StringRef Text);

/// The file's bytes.
llvm::Expected<std::string> readFile(llvm::StringRef Path);

/// "'PATH': what the system says".
llvm::Error fileError(llvm::StringRef Path, std::error_code Code);

} // namespace accel::migrate

#endif // ACCEL_LIB_EDIT_ATOMICFILE_H
