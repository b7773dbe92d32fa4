//===- CMake.cpp - The project's CMakeLists.txt ---------------------------===//

#include "accel/migrate/CMake.h"

#include "CMakeLists.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/Frontend.h"
#include "accel/migrate/Templates.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

namespace {

class Linker {
public:
  explicit Linker(function_ref<bool(StringRef)> MayEdit) : MayEdit(MayEdit) {}

  void add(const std::string &Source);
  CMakeResult finish();

private:
  /// The CMakeLists.txt files from the source's folder upwards, nearest first.
  std::vector<const CMakeLists *> listsAbove(StringRef Source);
  void findPackage(ArrayRef<const CMakeLists *> Above, const CMakeCommand &Target);
  bool link(const CMakeLists &Lists, const CMakeCommand &Target);
  void insert(const CMakeLists &Lists, unsigned Offset, std::string Text,
              std::string Why, int Priority);
  void insertLine(const CMakeLists &Lists, const CMakeCommand &Behind,
                  std::string Text, std::string Why, int Priority);
  void giveUp(const std::string &Source, std::string Why,
              StringRef Target = "YOUR_TARGET");

  function_ref<bool(StringRef)> MayEdit;
  std::map<std::string, std::unique_ptr<CMakeLists>> Known;
  std::map<std::string, std::vector<Change>> Changes;
  CMakeResult Result;
};

} // namespace

std::vector<const CMakeLists *> Linker::listsAbove(StringRef Source) {
  std::vector<std::pair<std::string, std::string>> Found;
  for (StringRef Dir = sys::path::parent_path(Source); !Dir.empty();
       Dir = sys::path::parent_path(Dir)) {
    std::string File = (Dir + "/CMakeLists.txt").str();
    if (!sys::fs::exists(File))
      continue;
    auto Text = MemoryBuffer::getFile(File);
    if (!MayEdit(realPath(File)) || !Text)
      break;
    Found.emplace_back(realPath(File), (*Text)->getBuffer().str());
  }
  std::vector<const CMakeLists *> Result;
  for (auto &[File, Text] : Found) {
    std::unique_ptr<CMakeLists> &Entry = Known[File];
    if (!Entry)
      Entry = std::make_unique<CMakeLists>(
          File, std::move(Text), sys::path::parent_path(Found.back().first));
    Result.push_back(Entry.get());
  }
  return Result;
}

void Linker::insert(const CMakeLists &Lists, unsigned Offset, std::string Text,
                    std::string Why, int Priority) {
  Change C;
  C.Range = {Lists.file().str(), Offset, 0};
  C.Replacement = std::move(Text);
  C.Rule = "cmake";
  C.Why = std::move(Why);
  C.Priority = Priority;
  std::vector<Change> &All = Changes[Lists.file().str()];
  // Two sources of one target ask for the same.
  if (none_of(All, [&](const Change &Other) {
        return Other.Range.Offset == Offset && Other.Replacement == C.Replacement;
      }))
    All.push_back(std::move(C));
}

/// On a line of its own behind a command, indented as that is.
void Linker::insertLine(const CMakeLists &Lists, const CMakeCommand &Behind,
                        std::string Text, std::string Why, int Priority) {
  StringRef All = Lists.text();
  size_t LineStart = All.take_front(Behind.Begin).rfind('\n');
  LineStart = LineStart == StringRef::npos ? 0 : LineStart + 1;
  std::string Indent = All.slice(LineStart, Behind.Begin)
                           .take_while([](char C) { return isSpace(C); })
                           .str();
  size_t End = All.find('\n', Behind.Close);
  bool IsLast = End == StringRef::npos;
  StringRef Break = All.contains("\r\n") ? "\r\n" : "\n";
  insert(Lists, IsLast ? All.size() : End + 1,
         IsLast ? (Break + Indent + Text).str() : (Indent + Text + Break).str(),
         std::move(Why), Priority);
}

/// The command behind which something is at the top level: the one given, or the
/// end of the outermost block around it.
static const CMakeCommand &topLevelBehind(ArrayRef<CMakeCommand> Commands,
                                          const CMakeCommand &C) {
  constexpr StringRef Blocks[] = {"if",       "foreach", "while",
                                  "function", "macro",   "block"};
  unsigned Depth = 0;
  bool IsReached = false;
  for (const CMakeCommand &At : Commands) {
    IsReached |= &At == &C;
    StringRef Name = At.Name;
    if (is_contained(Blocks, Name))
      ++Depth;
    else if (Name.consume_front("end") && is_contained(Blocks, Name) && Depth)
      --Depth;
    if (IsReached && Depth == 0)
      return At;
  }
  return C;
}

void Linker::findPackage(ArrayRef<const CMakeLists *> Above,
                         const CMakeCommand &Target) {
  auto Finds = [](const CMakeCommand &C, StringRef Package) {
    return C.Name == "find_package" && C.argument(0) == Package;
  };
  for (const CMakeLists *Lists : Above)
    if (any_of(Lists->commands(), [&](const CMakeCommand &C) {
          return Finds(C, "accel") ||
                 ((C.Name == "add_subdirectory" ||
                   C.Name == "fetchcontent_makeavailable") &&
                  C.argument(0).contains("accel"));
        }))
      return;
  const char *Why = "migrated programs link accel";
  std::string Line = renderTemplate("cmake-find-package", {});
  for (const CMakeLists *Lists : Above)
    for (const CMakeCommand &C : Lists->commands())
      if (Finds(C, "Torch"))
        return insertLine(*Lists, topLevelBehind(Lists->commands(), C), Line,
                          Why, 0);
  for (const CMakeCommand &C : Above.front()->commands())
    if (C.Name == "project")
      return insertLine(*Above.front(), C, Line, Why, 0);
  StringRef Break = Above.front()->text().contains("\r\n") ? "\r\n" : "\n";
  insert(*Above.front(), Target.Begin, (Line + Break).str(), Why, 0);
}

/// Adds the link item where the target's others are. False if that cannot be
/// done without changing what others get.
bool Linker::link(const CMakeLists &Lists, const CMakeCommand &Target) {
  std::string Name = Lists.expand(Target.argument(0));
  std::string Item = renderTemplate("cmake-link-item", {});
  const char *Why = "the migrated program calls accel";
  const CMakeCommand *Call = nullptr;
  for (const CMakeCommand &C : Lists.commands())
    if (C.Name == "target_link_libraries" &&
        Lists.expand(C.argument(0)) == Name) {
      if (any_of(C.Arguments,
                 [&](const CMakeArgument &A) { return A.Text == Item; }))
        return true;
      Call = Call ? Call : &C;
    }
  if (!Call) {
    insertLine(Lists, Target,
               renderTemplate("cmake-link", {{"target", Target.argument(0)}}),
               Why, 1);
    return true;
  }
  // All calls for a target must have keywords, or none of them.
  bool HasKeyword = false;
  for (const CMakeArgument &A : Call->Arguments) {
    if (A.Text == "PRIVATE" || A.Text == "PUBLIC") {
      insert(Lists, A.End, " " + Item, Why, 1);
      return true;
    }
    HasKeyword |= A.Text == "INTERFACE" || StringRef(A.Text).starts_with("LINK_");
  }
  if (HasKeyword || Call->Arguments.empty())
    return false;
  insert(Lists, Call->Arguments.back().End, " " + Item, Why, 1);
  return true;
}

void Linker::giveUp(const std::string &Source, std::string Why,
                    StringRef Target) {
  Result.Notes.push_back(makeFinding(
      "ACL0040", {Source, 0, 0}, std::move(Why),
      "Add these lines: " + renderTemplate("cmake-find-package", {}) + " and " +
          renderTemplate("cmake-link", {{"target", Target}}) + "."));
}

void Linker::add(const std::string &Source) {
  std::vector<const CMakeLists *> Above = listsAbove(Source);
  if (Above.empty())
    return giveUp(Source, "there is no CMakeLists.txt above it in the project");
  bool IsFound = false;
  for (size_t I = 0; I != Above.size(); ++I)
    for (const CMakeCommand &C : Above[I]->commands()) {
      if ((C.Name != "add_executable" && C.Name != "add_library" &&
           C.Name != "target_sources") ||
          C.Arguments.empty() ||
          !Above[I]->names(ArrayRef(C.Arguments).drop_front(), Source))
        continue;
      IsFound = true;
      if (link(*Above[I], C))
        findPackage(ArrayRef(Above).drop_front(I), C);
      else
        giveUp(Source,
               "the target '" + C.argument(0).str() +
                   "' only has target_link_libraries that others inherit",
               C.argument(0));
    }
  if (!IsFound)
    giveUp(Source, "no add_executable, add_library or target_sources in '" +
                       Above.front()->file().str() +
                       "' or above names it in plain sight");
}

CMakeResult Linker::finish() {
  for (auto &[File, OfFile] : Changes) {
    FileEdit Edit;
    Edit.File = File;
    Edit.Before = Known[File]->text().str();
    Edit.Changes = std::move(OfFile);
    Change Culprit;
    // Insertions do not overlap.
    Edit.After = cantFail(applyChanges(Edit.Before, Edit.Changes, Culprit));
    Result.Files.push_back(std::move(Edit));
  }
  return std::move(Result);
}

CMakeResult linkAccel(ArrayRef<std::string> Sources,
                      function_ref<bool(StringRef)> MayEdit) {
  Linker TheLinker(MayEdit);
  for (const std::string &Source : Sources)
    TheLinker.add(Source);
  return TheLinker.finish();
}

} // namespace accel::migrate
