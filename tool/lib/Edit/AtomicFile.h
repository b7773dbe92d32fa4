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
  /// Writes and syncs the text. An existing file's permissions are taken over.
  static llvm::Expected<AtomicFile> create(llvm::StringRef Path,
                                           llvm::StringRef Text);
  AtomicFile(AtomicFile &&Other);
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  llvm::Error commit();

private:
  AtomicFile(std::string Path, std::string Temporary)
      : Path(std::move(Path)), Temporary(std::move(Temporary)) {}

  std::string Path;
  std::string Temporary; ///< Empty when there is nothing left to remove.
};

/// create and commit.
llvm::Error writeAtomically(llvm::StringRef Path, llvm::StringRef Text);

/// The file's bytes.
llvm::Expected<std::string> readFile(llvm::StringRef Path);

/// "'PATH': what the system says".
llvm::Error fileError(llvm::StringRef Path, std::error_code Code);

} // namespace accel::migrate

#endif // ACCEL_LIB_EDIT_ATOMICFILE_H
