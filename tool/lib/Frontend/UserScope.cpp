//===- UserScope.cpp - Which files are the user's own ---------------------===//

#include "UserScope.h"

#include "clang/Basic/FileManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

static bool isBelow(StringRef Path, StringRef Dir) {
  return !Dir.empty() && Path.starts_with(Dir) &&
         (Dir.ends_with("/") || Path.substr(Dir.size()).starts_with("/"));
}

std::pair<std::string, bool> projectOf(StringRef File) {
  StringRef Own = sys::path::parent_path(File);
  for (StringRef At = Own; !At.empty(); At = sys::path::parent_path(At))
    if (sys::fs::exists(At + "/.git"))
      return {At.str(), true};
  auto IsMarked = [](StringRef Dir) {
    return sys::fs::exists(Dir + "/CMakeLists.txt");
  };
  StringRef Top;
  // Sources often stand in a folder of their own, src/, below the mark.
  StringRef At = IsMarked(Own) ? Own : sys::path::parent_path(Own);
  for (; !At.empty() && IsMarked(At); At = sys::path::parent_path(At))
    Top = At;
  return Top.empty() ? std::pair(Own.str(), false) : std::pair(Top.str(), true);
}

UserScope::UserScope(StringRef MainFile, std::vector<std::string> Foreign,
                     StringRef BuildDir, StringRef InRoot)
    : Project(projectOf(MainFile).first),
      Fence(InRoot.empty() ? Project : InRoot.str()),
      Foreign(std::move(Foreign)) {
  if (!isBelow(MainFile, BuildDir))
    Generated = BuildDir.str();
}

bool UserScope::isForeign(StringRef RealPath) const {
  return any_of(Foreign, [&](StringRef Dir) { return isBelow(RealPath, Dir); });
}

bool UserScope::isUser(StringRef RealPath, bool IsSystemHeader) const {
  if (isForeign(RealPath))
    return false;
  if (isBelow(RealPath, Project))
    return true;
  return !IsSystemHeader && !isBelow(RealPath, "/usr");
}

bool UserScope::mayEdit(StringRef RealPath) const {
  return isBelow(RealPath, Fence) && !isForeign(RealPath) &&
         !isBelow(RealPath, Generated);
}

/// A library that lies in the project as one header, as of JSON or images: a
/// file that is larger than people write, and knows nothing of LibTorch.
static bool isLibrary(FileID File, const SourceManager &SM) {
  constexpr size_t Large = 200'000;
  const std::optional<StringRef> Text = SM.getBufferDataOrNone(File);
  return Text && Text->size() >= Large && !Text->contains("torch");
}

StringRef realPathOf(FileID File, const SourceManager &SM) {
  const OptionalFileEntryRef Ref = SM.getFileEntryRefForID(File);
  return Ref ? SM.getFileManager().getCanonicalName(*Ref) : "";
}

bool UserLocations::contains(FileID File, const SourceManager &SM) {
  if (File.isInvalid())
    return false;
  auto [Entry, IsNew] = Known.try_emplace(File, false);
  if (!IsNew)
    return Entry->second;
  const StringRef Real = realPathOf(File, SM);
  if (Real.empty())
    return false;
  bool IsSystem =
      SrcMgr::isSystem(SM.getFileCharacteristic(SM.getLocForStartOfFile(File)));
  const bool IsUser = File == SM.getMainFileID() ||
                      (Scope.isUser(Real, IsSystem) && !isLibrary(File, SM));
  return Known[File] = IsUser;
}

bool UserLocations::contains(SourceLocation Loc, const SourceManager &SM) {
  return Loc.isValid() && contains(SM.getFileID(SM.getExpansionLoc(Loc)), SM);
}

} // namespace accel::migrate
