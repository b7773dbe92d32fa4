//===- MacroLeaks.cpp - Macros between sources of a program ---------------===//

#include "MacroLeaks.h"

#include "clang/Basic/FileManager.h"
#include "clang/Basic/IdentifierTable.h"
#include "clang/Lex/MacroInfo.h"
#include "clang/Lex/Token.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

class MacroLeakWatch : public PPCallbacks {
public:
  MacroLeakWatch(ArrayRef<std::string> Sources, const SourceManager &SM,
                 std::string &Leaked)
      : Sources(Sources), SM(SM), Leaked(Leaked) {}

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
  unsigned sourceOf(SourceLocation Loc) {
    const FileID File = SM.getFileID(SM.getFileLoc(Loc));
    auto [It, New] = Known.try_emplace(File, 0);
    if (New)
      if (OptionalFileEntryRef Ref = SM.getFileEntryRefForID(File)) {
        const StringRef Real = SM.getFileManager().getCanonicalName(*Ref);
        const auto *Found = llvm::find(Sources, Real);
        It->second = Found == Sources.end() ? 0 : Found - Sources.begin() + 1;
      }
    return It->second;
  }

  void meet(const Token &Name, const MacroDefinition &D) {
    const MacroInfo *Info = D.getMacroInfo();
    if (!Info || !Leaked.empty() || Info->isBuiltinMacro() ||
        Info->getDefinitionLoc().isInvalid())
      return;
    const unsigned From = sourceOf(Info->getDefinitionLoc());
    const unsigned At = sourceOf(Name.getLocation());
    if (From && At && From != At)
      Leaked = Name.getIdentifierInfo()->getName().str();
  }

  ArrayRef<std::string> Sources;
  const SourceManager &SM;
  std::string &Leaked;
  DenseMap<FileID, unsigned> Known;
};

} // namespace

std::unique_ptr<PPCallbacks> watchMacroLeaks(ArrayRef<std::string> Sources,
                                             const SourceManager &SM,
                                             std::string &Leaked) {
  return std::make_unique<MacroLeakWatch>(Sources, SM, Leaked);
}

} // namespace accel::migrate
