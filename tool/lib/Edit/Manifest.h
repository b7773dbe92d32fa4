//===- Manifest.h - What a migration replaced -------------------*- C++ -*-===//

#ifndef ACCEL_LIB_EDIT_MANIFEST_H
#define ACCEL_LIB_EDIT_MANIFEST_H

#include "accel/migrate/Edit.h"

namespace accel::migrate {

/// One manifest of Write.h.
struct Manifest {
  struct Entry {
    std::string Path; ///< Relative to the root.
    std::string BeforeHash, AfterHash;
    std::string Original;
  };
  std::string Location; ///< The manifest's own path.
  std::string Root;     ///< Absolute.
  std::vector<Entry> Entries;

  /// A manifest for these edits, not yet written, in the folder's next number.
  /// `Root` is the files' common folder.
  static Manifest forEdits(llvm::ArrayRef<FileEdit> Files, llvm::StringRef Root,
                           llvm::StringRef StateDir);
  /// The folder in which it will be; to be locked before any of this.
  static std::string folderFor(llvm::StringRef Root, llvm::StringRef StateDir);
  static llvm::Expected<Manifest> load(llvm::StringRef Location);

  llvm::Error save() const;
  /// Deletes the file, and the folders that were made for it if they are empty.
  void remove() const;
  std::string pathOf(const Entry &E) const;
};

/// The manifests in a folder, the newest first.
std::vector<std::string> manifestsIn(llvm::StringRef Folder);

/// Lower-case hexadecimal SHA-256.
std::string hashOf(llvm::StringRef Text);

} // namespace accel::migrate

#endif // ACCEL_LIB_EDIT_MANIFEST_H
