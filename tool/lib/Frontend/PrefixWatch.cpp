//===- PrefixWatch.cpp - Whether a precompiled prefix means the same ------===//

#include "PrefixWatch.h"

#include "IncludeScan.h"
#include "UserScope.h"

#include "clang/Basic/SourceManager.h"
#include "clang/Lex/Lexer.h"
#include "clang/Lex/MacroInfo.h"
#include "clang/Lex/Token.h"

using namespace llvm;
using namespace clang;
using namespace accel::migrate;

namespace {
class PrefixWatch : public PPCallbacks {
public:
  PrefixWatch(const SourceManager &SM, const LangOptions &LangOpts,
              UserLocations &User, bool HasAccel,
              PrefixMentions Mentions, bool &Fits)
      : SM(SM), LangOpts(LangOpts), User(User), HasAccel(HasAccel),
        Mentions(std::move(Mentions)), Fits(Fits) {}

  void InclusionDirective(SourceLocation, const Token &, StringRef Name, bool,
                          CharSourceRange, OptionalFileEntryRef, StringRef,
                          StringRef, const clang::Module *, bool,
                          SrcMgr::CharacteristicKind) override {
    const bool IsTorch = Name == "torch/torch.h" || Name == "torch/all.h";
    if (HasAccel ? Name == "accel/accel.h" : IsTorch)
      decide(true);
    // #undef slots, #include <torch/torch.h>, #define slots Q_SLOTS
    else if (IsTorch)
      Rest = PrefixPart::OnlyAccel;
  }

  // With the prefix accel's names are there from the start. A file that uses one
  // before the include would compile here and nowhere else.
  void LexedFileChanged(FileID File, LexedFileChangeReason Reason,
                        SrcMgr::CharacteristicKind, FileID,
                        SourceLocation) override {
    if (HasAccel && !Decided && Reason == LexedFileChangeReason::EnterFile &&
        User.contains(File, SM) &&
        namesAccelBeforeIncludingIt(SM.getBufferData(File)))
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
    if (Mentions(Name.getIdentifierInfo()->getName(), Rest))
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

  /// Whether `accel` or a macro of accel's stands in the code, whoever it is that
  /// declares it. Comments are no code.
  bool namesAccelBeforeIncludingIt(StringRef Text) const {
    Lexer Raw(SourceLocation(), LangOpts, Text.begin(), Text.begin(),
              Text.end());
    bool InInclude = false;
    for (Token T; !Raw.LexFromRawLexer(T);) {
      if (T.isAtStartOfLine()) {
        InInclude = false;
        if (T.is(tok::hash)) {
          StringRef Name = includedName(StringRef(Raw.getBufferLocation() - 1)
                                            .take_until([](char C) { return C == '\n'; }));
          if (Name == "accel/accel.h")
            return false;
          InInclude = !Name.empty();
        }
      }
      if (!InInclude && T.is(tok::raw_identifier) &&
          (T.getRawIdentifier() == "accel" ||
           T.getRawIdentifier().starts_with("ACCEL_")))
        return true;
    }
    return false;
  }

  const SourceManager &SM;
  const LangOptions &LangOpts;
  UserLocations &User;
  const bool HasAccel;
  const PrefixMentions Mentions;
  PrefixPart Rest = PrefixPart::All; ///< What is still to be included.
  bool &Fits;
  bool Decided = false;
};
} // namespace

std::unique_ptr<PPCallbacks>
accel::migrate::watchPrefix(const SourceManager &SM,
                            const LangOptions &LangOpts, UserLocations &User,
                            bool HasAccel,
                            PrefixMentions Mentions, bool &Fits) {
  return std::make_unique<PrefixWatch>(SM, LangOpts, User, HasAccel,
                                       std::move(Mentions), Fits);
}
