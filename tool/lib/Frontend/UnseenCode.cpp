//===- UnseenCode.cpp - What the preprocessor leaves out ------------------===//

#include "UnseenCode.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

class UnseenCode::Watch : public PPCallbacks {
public:
  Watch(UnseenCode &Code, const SourceManager &SM, UserLocations &User)
      : Code(Code), SM(SM), User(User) {}

  void FileChanged(SourceLocation Loc, FileChangeReason Reason,
                   SrcMgr::CharacteristicKind, FileID) override {
    FileID File = SM.getFileID(Loc);
    if (Reason == EnterFile && User.contains(File, SM))
      ++Code.Entered[realPathOf(File, SM).str()];
  }

  void SourceRangeSkipped(SourceRange Range, SourceLocation) override {
    auto [File, Begin] = SM.getDecomposedLoc(Range.getBegin());
    auto [EndFile, End] = SM.getDecomposedLoc(Range.getEnd());
    if (File == EndFile && End >= Begin && User.contains(File, SM))
      ++Code.LeftOut[{realPathOf(File, SM).str(), Begin, End - Begin}];
  }

private:
  UnseenCode &Code;
  const SourceManager &SM;
  UserLocations &User;
};

std::unique_ptr<PPCallbacks> UnseenCode::watch(const SourceManager &SM,
                                               UserLocations &User) {
  return std::make_unique<Watch>(*this, SM, User);
}

std::vector<TextRange> UnseenCode::ranges() const {
  std::vector<TextRange> Result;
  for (const auto &[Part, Times] : LeftOut) {
    const auto &[File, Offset, Length] = Part;
    auto Known = Entered.find(File);
    if (Known == Entered.end() || Times >= Known->second)
      Result.push_back({File, Offset, Length});
  }
  return Result;
}

} // namespace accel::migrate
