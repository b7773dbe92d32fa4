//===- PrefixWatch.cpp - Whether a precompiled prefix means the same ------===//

#include "PrefixWatch.h"

#include "UserScope.h"

#include "accel/migrate/Frontend.h"

#include "clang/Basic/SourceManager.h"
#include "clang/Lex/MacroInfo.h"
#include "clang/Lex/Token.h"

using namespace llvm;
using namespace clang;
using namespace accel::migrate;

namespace {
class PrefixWatch : public PPCallbacks {
public:
  PrefixWatch(const SourceManager &SM, UserLocations &User, bool HasAccel,
              ArrayRef<std::string> Sources,
              std::function<bool(StringRef)> Mentions, bool &Fits)
      : SM(SM), User(User), HasAccel(HasAccel), Sources(Sources),
        Mentions(std::move(Mentions)), Fits(Fits) {}

  void InclusionDirective(SourceLocation, const Token &, StringRef Name, bool,
                          CharSourceRange, OptionalFileEntryRef, StringRef,
                          StringRef, const clang::Module *, bool,
                          SrcMgr::CharacteristicKind) override {
    if (HasAccel ? Name == "accel/accel.h"
                 : Name == "torch/torch.h" || Name == "torch/all.h")
      decide(true);
  }

  // accel's headers are not written as defensively as LibTorch's: what a header
  // of the user's declares before them may matter.
  void LexedFileChanged(FileID File, LexedFileChangeReason,
                        SrcMgr::CharacteristicKind, FileID,
                        SourceLocation) override {
    if (!HasAccel || Decided || File == SM.getMainFileID() ||
        !User.contains(File, SM))
      return;
    OptionalFileEntryRef Entry = SM.getFileEntryRefForID(File);
    if (!Entry || !is_contained(Sources, realPath(Entry->getName())))
      decide(false);
  }

  // A macro of the user's matters where LibTorch's headers have its name.
  void MacroDefined(const Token &Name, const MacroDirective *MD) override {
    if (!Decided && User.contains(Name.getLocation(), SM) &&
        !isHeaderGuard(Name, *MD->getMacroInfo()))
      changed(Name);
  }

  // `#undef slots` before LibTorch undefines nothing without Qt's headers.
  void MacroUndefined(const Token &Name, const MacroDefinition &Before,
                      const MacroDirective *) override {
    if (!Decided && Before && User.contains(Name.getLocation(), SM))
      changed(Name);
  }

private:
  void changed(const Token &Name) {
    if (Mentions(Name.getIdentifierInfo()->getName()))
      decide(false);
  }

  void decide(bool Answer) {
    if (!Decided)
      Fits = Answer;
    Decided = true;
  }

  /// Clang only knows at the end of a header what its guard is.
  bool isHeaderGuard(const Token &Name, const MacroInfo &Macro) const {
    auto [File, Offset] = SM.getDecomposedLoc(Name.getLocation());
    StringRef Before = SM.getBufferData(File).take_front(Offset);
    return File != SM.getMainFileID() && Macro.getNumTokens() == 0 &&
           Before.contains(
               ("#ifndef " + Name.getIdentifierInfo()->getName()).str());
  }

  const SourceManager &SM;
  UserLocations &User;
  const bool HasAccel;
  ArrayRef<std::string> Sources;
  const std::function<bool(StringRef)> Mentions;
  bool &Fits;
  bool Decided = false;
};
} // namespace

std::unique_ptr<PPCallbacks>
accel::migrate::watchPrefix(const SourceManager &SM, UserLocations &User,
                            bool HasAccel, ArrayRef<std::string> Sources,
                            std::function<bool(StringRef)> Mentions,
                            bool &Fits) {
  return std::make_unique<PrefixWatch>(SM, User, HasAccel, Sources,
                                       std::move(Mentions), Fits);
}
