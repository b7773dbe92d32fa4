//===- ProjectSources.h - Which sources make a program ----------*- C++ -*-===//
//
// A program is the file with main and the sources that define what it uses.
// Build systems say so in many ways and often not at all, so that it is found
// from what is missing: a function that is called and has no body in what was
// read is looked for in the project's other sources. Everything here is a look
// at text without a preprocessor; the parser has the last word.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_PROJECTSOURCES_H
#define ACCEL_MIGRATE_PROJECTSOURCES_H

#include "accel/migrate/Change.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace accel::migrate {

/// The sources and headers of a project. All paths are real paths.
class ProjectSources {
public:
  /// `Folder` is the project's; `IsMarked` says that something (a repository, a
  /// CMakeLists.txt) marks it as one. Where nothing does, only the folder and
  /// the ones directly in it are looked at.
  ProjectSources(llvm::StringRef Folder, bool IsMarked);

  /// The sources beyond `Known` that define some of the missing functions.
  std::vector<std::string>
  defining(llvm::ArrayRef<MissingFunction> Missing,
           llvm::ArrayRef<std::string> Known);

  /// The files with a main() that include `File`, or use a source that does.
  std::vector<std::string> programsWith(llvm::StringRef File);

  /// Whether the text of a file defines main.
  bool hasMain(llvm::StringRef File);
  /// Whether `File` includes `Header`, directly or not, or is it.
  bool reads(llvm::StringRef File, llvm::StringRef Header);

  /// The folder that `#include "Name"` in `From` must look into to find a header
  /// of the project; empty if no file fits, or none better than another.
  std::string folderOf(llvm::StringRef Name, llvm::StringRef From);

  /// Whether `File`, or what it includes of the project, has this text in it.
  bool mentions(llvm::StringRef File, llvm::StringRef Text);

  /// Whether backward() is called in the source's own text.
  bool trains(llvm::StringRef File);

private:
  struct SourceFile {
    bool Loaded = false;
    std::string Text; ///< Without comments.
    /// Real paths of the project's files that it includes.
    std::vector<std::string> Includes;
  };

  void scan(llvm::StringRef Folder, unsigned Depth);
  SourceFile &add(const std::string &Path);
  SourceFile &load(llvm::StringRef File);
  std::vector<std::string> resolve(llvm::StringRef From, llvm::StringRef Name);
  const std::set<std::string> &readBy(const std::string &File);
  bool usesReaderOf(const std::string &Main, llvm::StringRef File);
  bool defines(llvm::StringRef File, const MissingFunction &F);
  bool isListed(llvm::StringRef Source);
  std::tuple<bool, bool, unsigned> fitness(llvm::StringRef Source,
                                           llvm::StringRef DeclaredIn);

  std::map<std::string, SourceFile> Files; ///< Sources and headers.
  /// The paths in `Files` by their last part, and the sources by that without
  /// its extension. An include and a header's source are found by these.
  llvm::StringMap<std::vector<std::string>> ByName, SourcesByStem;
  std::vector<std::string> Lists;          ///< Every CMakeLists.txt.
  std::map<std::string, std::set<std::string>> Closures;
};

/// Whether a name ends as that of a source, not of a header.
bool isSource(llvm::StringRef Path);

/// Whether `Text` has a call, or a declaration, of something of just this name:
/// `move_backward(` is none of `backward`.
bool callsFunction(llvm::StringRef Text, llvm::StringRef Name);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_PROJECTSOURCES_H
