//===- SourcesTogether.cpp - Several sources as one unit ------------------===//

#include "SourcesTogether.h"

#include "clang/Basic/SourceManager.h"
#include "clang/Lex/HeaderSearch.h"
#include "clang/Lex/MacroInfo.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

class TogetherWatch : public PPCallbacks {
public:
  TogetherWatch(ArrayRef<std::string> Sources, Preprocessor &PP,
                UserLocations &User, std::string &Leaked)
      : Sources(Sources), PP(PP), SM(PP.getSourceManager()), User(User),
        Leaked(Leaked) {}

  void FileChanged(SourceLocation Loc, FileChangeReason Reason,
                   SrcMgr::CharacteristicKind, FileID) override {
    const FileID File = SM.getFileID(Loc);
    if (Reason != EnterFile || !User.contains(File, SM))
      return;
    if (sourceOf(File)) {
      for (FileEntryRef Header : Read)
        PP.getHeaderSearchInfo().MarkFileIncludeOnce(Header);
      Read.clear();
    } else if (!isList(realPathOf(File, SM))) {
      Read.push_back(*SM.getFileEntryRefForID(File));
    }
  }

  void MacroExpands(const Token &Name, const MacroDefinition &D, SourceRange,
                    const MacroArgs *) override {
    meet(Name, D);
  }
  void Defined(const Token &Name, const MacroDefinition &D,
               SourceRange) override {
    meet(Name, D);
  }
  void Ifdef(SourceLocation, const Token &Name,
             const MacroDefinition &D) override {
    meet(Name, D);
  }
  void Ifndef(SourceLocation, const Token &Name,
              const MacroDefinition &D) override {
    meet(Name, D);
  }
  void Elifdef(SourceLocation, const Token &Name,
               const MacroDefinition &D) override {
    meet(Name, D);
  }
  void Elifndef(SourceLocation, const Token &Name,
                const MacroDefinition &D) override {
    meet(Name, D);
  }

private:
  /// The source that a file is, from 1 on; 0 for headers.
  unsigned sourceOf(FileID File) {
    auto [It, New] = Known.try_emplace(File, 0);
    if (New) {
      const auto *Found = llvm::find(Sources, realPathOf(File, SM));
      It->second = Found == Sources.end() ? 0 : Found - Sources.begin() + 1;
    }
    return It->second;
  }

  /// Made to be read several times, with other macros each time.
  static bool isList(StringRef Path) {
    const StringRef Extension = sys::path::extension(Path);
    return Extension == ".def" || Extension == ".inc";
  }

  void meet(const Token &Name, const MacroDefinition &D) {
    const MacroInfo *Info = D.getMacroInfo();
    if (!Info || !Leaked.empty() || Info->isBuiltinMacro() ||
        Info->getDefinitionLoc().isInvalid())
      return;
    const auto Source = [&](SourceLocation Loc) {
      return sourceOf(SM.getFileID(SM.getFileLoc(Loc)));
    };
    const unsigned From = Source(Info->getDefinitionLoc());
    const unsigned At = Source(Name.getLocation());
    if (From && At && From != At)
      Leaked = Name.getIdentifierInfo()->getName().str();
  }

  ArrayRef<std::string> Sources;
  Preprocessor &PP;
  const SourceManager &SM;
  UserLocations &User;
  std::string &Leaked;
  DenseMap<FileID, unsigned> Known;
  std::vector<FileEntryRef> Read; ///< By the source that is being read.
};

} // namespace

std::unique_ptr<PPCallbacks>
watchSourcesTogether(ArrayRef<std::string> Sources, Preprocessor &PP,
                     UserLocations &User, std::string &Leaked) {
  return std::make_unique<TogetherWatch>(Sources, PP, User, Leaked);
}

} // namespace accel::migrate
