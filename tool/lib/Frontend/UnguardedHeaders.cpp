//===- UnguardedHeaders.cpp - Headers that every source may read ----------===//

#include "UnguardedHeaders.h"

#include "clang/Basic/FileManager.h"
#include "clang/Basic/SourceManager.h"
#include "clang/Lex/HeaderSearch.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

class ReadOnce : public PPCallbacks {
public:
  ReadOnce(ArrayRef<std::string> Sources, Preprocessor &PP,
           std::function<bool(FileID)> IsUsers)
      : Sources(Sources), PP(PP), IsUsers(std::move(IsUsers)) {}

  void FileChanged(SourceLocation Loc, FileChangeReason Reason,
                   SrcMgr::CharacteristicKind, FileID) override {
    if (Reason != EnterFile)
      return;
    const SourceManager &SM = PP.getSourceManager();
    const FileID File = SM.getFileID(Loc);
    const OptionalFileEntryRef Ref = SM.getFileEntryRefForID(File);
    if (!Ref || !IsUsers(File))
      return;
    const StringRef Real = SM.getFileManager().getCanonicalName(*Ref);
    if (is_contained(Sources, Real)) {
      for (FileEntryRef Header : Read)
        PP.getHeaderSearchInfo().MarkFileIncludeOnce(Header);
      Read.clear();
    } else if (!isList(Real)) {
      Read.push_back(*Ref);
    }
  }

private:
  /// Made to be read several times, with other macros each time.
  static bool isList(StringRef Path) {
    const StringRef Extension = sys::path::extension(Path);
    return Extension == ".def" || Extension == ".inc";
  }

  ArrayRef<std::string> Sources;
  Preprocessor &PP;
  std::function<bool(FileID)> IsUsers;
  std::vector<FileEntryRef> Read; ///< By the source that is being read.
};

} // namespace

std::unique_ptr<PPCallbacks>
readUnguardedHeadersOnce(ArrayRef<std::string> Sources, Preprocessor &PP,
                         std::function<bool(FileID)> IsUsers) {
  return std::make_unique<ReadOnce>(Sources, PP, std::move(IsUsers));
}

} // namespace accel::migrate
