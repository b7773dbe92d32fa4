//===- ProjectSources.cpp - Which sources make a program ------------------===//

#include "accel/migrate/ProjectSources.h"

#include "IncludeScan.h"

#include "accel/migrate/Frontend.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <algorithm>

using namespace llvm;

namespace accel::migrate {

/// A project with more files than this is not one that somebody trains with;
/// what is beyond is not looked at.
static constexpr size_t MaxFiles = 4000;
static constexpr uint64_t MaxFileBytes = 2u << 20;
/// A folder with more mains than these holds small programs of one file each.
static constexpr size_t MaxMainsBeside = 2;

bool isSource(StringRef Path) {
  return StringSwitch<bool>(sys::path::extension(Path))
      .Cases(".cpp", ".cc", ".cxx", ".c++", ".C", true)
      .Default(false);
}

static bool isHeader(StringRef Path) {
  return StringSwitch<bool>(sys::path::extension(Path))
      .Cases(".h", ".hpp", ".hh", ".hxx", ".h++", ".inl", ".ipp", ".tpp", true)
      .Default(false);
}

static bool isWordChar(char C) { return isAlnum(C) || C == '_'; }

/// `Text` with blanks for comments and for what stands in string literals of
/// more than one word; includes keep their names.
static std::string withoutComments(StringRef Text) {
  std::string Result = Text.str();
  auto Blank = [&](size_t From, size_t To) {
    for (size_t I = From; I < std::min(To, Result.size()); ++I)
      if (Result[I] != '\n')
        Result[I] = ' ';
  };
  // Every file of the project is looked at: only where something may begin.
  constexpr StringRef Begins = "/\"";
  for (size_t I = Text.find_first_of(Begins); I < Text.size();
       I = Text.find_first_of(Begins, I)) {
    const StringRef Rest = Text.drop_front(I);
    if (Rest.starts_with("//")) {
      const size_t End = std::min(Rest.find('\n'), Rest.size());
      Blank(I, I + End);
      I += End;
    } else if (Rest.starts_with("/*")) {
      const size_t End = Rest.find("*/", 2);
      const size_t Length = End == StringRef::npos ? Rest.size() : End + 2;
      Blank(I, I + Length);
      I += Length;
    } else if (Rest[0] == '"') {
      size_t End = 1;
      while (End < Rest.size() && Rest[End] != '"' && Rest[End] != '\n')
        End += Rest[End] == '\\' ? 2 : 1;
      End = std::min(End + 1, Rest.size());
      // The name of an include stays.
      if (Rest.take_front(End).find_first_of(" (){};") != StringRef::npos)
        Blank(I + 1, I + End - 1);
      I += End;
    } else {
      ++I;
    }
  }
  return Result;
}

/// The offset behind the parenthesis that closes the one that `Text` begins
/// with.
static size_t behindClosing(StringRef Text) {
  int Depth = 0;
  for (size_t I = 0; I < Text.size(); ++I) {
    Depth += Text[I] == '(';
    Depth -= Text[I] == ')';
    if (Depth == 0)
      return I + 1;
  }
  return StringRef::npos;
}

/// Whether what stands before a name is `Class::` or `Class<…>::`.
static bool endsWithQualifier(StringRef Before, StringRef Class) {
  Before = Before.rtrim();
  if (!Before.consume_back("::"))
    return false;
  Before = Before.rtrim();
  if (Before.ends_with(">")) {
    int Depth = 0;
    size_t I = Before.size();
    do {
      --I;
      Depth += Before[I] == '>';
      Depth -= Before[I] == '<';
    } while (I > 0 && Depth > 0);
    Before = Before.take_front(I).rtrim();
  }
  return Before.consume_back(Class) &&
         (Before.empty() || !isWordChar(Before.back()));
}

/// Whether `Name` stands in `Text` with such text before and behind it.
static bool
standsIn(StringRef Text, StringRef Name,
         function_ref<bool(StringRef Before, StringRef Behind)> As) {
  for (size_t At = Text.find(Name); At != StringRef::npos;
       At = Text.find(Name, At + 1))
    if (As(Text.take_front(At), Text.drop_front(At + Name.size())))
      return true;
  return false;
}

/// Whether `Text` has a definition of the function: its name (behind
/// `Class::`, where it has a class), parentheses, and a brace before the next
/// semicolon.
static bool definesFunction(StringRef Text, const MissingFunction &F) {
  return standsIn(Text, F.Name, [&](StringRef Before, StringRef Behind) {
    constexpr StringRef Blanks = " \t\r\n";
    if ((!Before.empty() && isWordChar(Before.back())) ||
        (!F.Class.empty() && !endsWithQualifier(Before, F.Class)))
      return false;
    Behind = Behind.ltrim(Blanks);
    const size_t Closed =
        Behind.starts_with("(") ? behindClosing(Behind) : StringRef::npos;
    if (Closed == StringRef::npos)
      return false;
    // `const`, `noexcept`, `-> T`, `: member(…)`, but neither the end of a
    // statement nor that of a condition.
    Behind = Behind.drop_front(Closed).ltrim(Blanks);
    if (Behind.empty() || !(isWordChar(Behind.front()) ||
                            StringRef("{:-").contains(Behind.front())))
      return false;
    return Behind.drop_until([](char C) { return C == '{' || C == ';'; })
        .starts_with("{");
  });
}

bool callsFunction(StringRef Text, StringRef Name) {
  return standsIn(Text, Name, [](StringRef Before, StringRef Behind) {
    Behind = Behind.ltrim();
    return (Before.empty() || !isWordChar(Before.back())) &&
           (Behind.starts_with("(") || Behind.starts_with("<"));
  });
}

ProjectSources::ProjectSources(StringRef Folder, bool IsMarked) {
  scan(realPath(Folder), IsMarked ? 12 : 1);
}

ProjectSources::SourceFile &ProjectSources::add(const std::string &Path) {
  auto [It, New] = Files.try_emplace(Path);
  if (New) {
    ByName[sys::path::filename(Path)].push_back(Path);
    if (isSource(Path))
      SourcesByStem[sys::path::stem(Path)].push_back(Path);
  }
  return It->second;
}

void ProjectSources::scan(StringRef Folder, unsigned Depth) {
  std::error_code Code;
  std::vector<std::string> Folders, Found;
  for (sys::fs::directory_iterator It(Folder, Code), End; !Code && It != End;
       It.increment(Code)) {
    const std::string &Path = It->path();
    const StringRef Name = sys::path::filename(Path);
    if (Name.starts_with("."))
      continue;
    sys::fs::file_type Type = It->type();
    if (Type == sys::fs::file_type::type_unknown) // Some file systems.
      if (auto Status = It->status())
        Type = Status->type();
    if (Type == sys::fs::file_type::directory_file)
      Folders.push_back(Path);
    else if (isSource(Path) || isHeader(Path))
      Found.push_back(Type == sys::fs::file_type::regular_file
                          ? Path
                          : realPath(Path));
  }
  // The order of a folder's entries is the file system's.
  llvm::sort(Folders);
  llvm::sort(Found);
  if (sys::fs::exists(Folder + "/CMakeLists.txt"))
    Lists.push_back((Folder + "/CMakeLists.txt").str());
  for (const std::string &Path : Found)
    if (Files.size() < MaxFiles)
      add(Path);
  if (Depth == 0)
    return;
  for (const std::string &Path : Folders)
    if (Files.size() < MaxFiles &&
        !sys::fs::exists(Path + "/CMakeCache.txt")) // Somebody's build folder.
      scan(Path, Depth - 1);
}

/// How many folders two paths begin with in common.
static unsigned sharedFolders(StringRef One, StringRef Other) {
  auto A = sys::path::begin(One), EndA = sys::path::end(One);
  auto B = sys::path::begin(Other), EndB = sys::path::end(Other);
  unsigned Count = 0;
  for (; A != EndA && B != EndB && *A == *B; ++A, ++B)
    ++Count;
  return Count;
}

std::vector<std::string> ProjectSources::resolve(StringRef From,
                                                 StringRef Name) {
  const std::string Beside =
      (sys::path::parent_path(From) + "/" + Name).str();
  if (sys::fs::exists(Beside))
    return {realPath(Beside)};
  // Through some -I: every file whose path ends like this.
  while (Name.consume_front("../") || Name.consume_front("./"))
    ;
  std::vector<std::string> Result;
  const std::string Ending = ("/" + Name).str();
  const auto Named = ByName.find(sys::path::filename(Name));
  if (Named == ByName.end())
    return Result;
  for (const std::string &Path : Named->second)
    if (StringRef(Path).ends_with(Ending))
      Result.push_back(Path);
  if (Result.size() < 2)
    return Result;
  // The nearest: the one that shares most folders.
  auto Shared = [&](StringRef Path) { return sharedFolders(Path, From); };
  const auto Best = Shared(*std::max_element(
      Result.begin(), Result.end(), [&](StringRef A, StringRef B) {
        return Shared(A) < Shared(B);
      }));
  llvm::erase_if(Result, [&](StringRef P) { return Shared(P) < Best; });
  return Result;
}

std::string ProjectSources::folderOf(StringRef Name, StringRef From) {
  while (Name.consume_front("./"))
    ;
  // A path that goes up is meant from one certain folder.
  if (Name.contains("../"))
    return "";
  const std::vector<std::string> Fits = resolve(From, Name);
  if (Fits.size() != 1)
    return "";
  StringRef Folder = Fits.front();
  return Folder.consume_back(("/" + Name).str()) ? Folder.str() : "";
}

ProjectSources::SourceFile &ProjectSources::load(StringRef File) {
  SourceFile &F = add(File.str());
  if (F.Loaded)
    return F;
  F.Loaded = true;
  uint64_t Size = 0;
  if (sys::fs::file_size(File, Size) || Size > MaxFileBytes)
    return F;
  auto Buffer = MemoryBuffer::getFile(File);
  if (!Buffer)
    return F;
  if (StringRef(File).ends_with(".txt")) {
    F.Text = (*Buffer)->getBuffer().str();
    return F;
  }
  F.Text = withoutComments((*Buffer)->getBuffer());
  StringRef Rest = F.Text;
  while (!Rest.empty()) {
    auto [Line, Next] = Rest.split('\n');
    Rest = Next;
    const StringRef Name = includedName(Line);
    if (!Name.empty())
      append_range(F.Includes, resolve(File, Name));
  }
  return F;
}

const std::set<std::string> &ProjectSources::readBy(const std::string &File) {
  auto [It, New] = Closures.try_emplace(File);
  if (!New)
    return It->second;
  std::set<std::string> Seen;
  std::vector<std::string> ToSee = {File};
  while (!ToSee.empty()) {
    const std::string At = std::move(ToSee.back());
    ToSee.pop_back();
    if (!Seen.insert(At).second)
      continue;
    append_range(ToSee, load(At).Includes);
  }
  return Closures[File] = std::move(Seen);
}

bool ProjectSources::reads(StringRef File, StringRef Header) {
  return readBy(File.str()).count(Header.str()) != 0;
}

bool ProjectSources::mentions(StringRef File, StringRef Text) {
  return any_of(readBy(File.str()), [&](const std::string &Read) {
    return StringRef(load(Read).Text).contains(Text);
  });
}

bool ProjectSources::trains(StringRef File) {
  return callsFunction(load(File).Text, "backward");
}

bool ProjectSources::hasMain(StringRef File) {
  return definesFunction(load(File).Text, {"", "main", ""});
}

bool ProjectSources::defines(StringRef File, const MissingFunction &F) {
  return definesFunction(load(File).Text, F);
}

/// Whether a CMakeLists.txt names a source, in its own folder or above.
bool ProjectSources::isListed(StringRef Source) {
  for (const std::string &List : Lists) {
    StringRef Relative = Source;
    if (!Relative.consume_front(sys::path::parent_path(List)) ||
        !Relative.consume_front("/"))
      continue;
    auto IsPathChar = [](char C) {
      return isWordChar(C) || C == '-' || C == '.';
    };
    if (standsIn(load(List).Text, Relative,
                 [&](StringRef Before, StringRef Behind) {
                   return (Before.empty() || !IsPathChar(Before.back())) &&
                          (Behind.empty() || !IsPathChar(Behind.front()));
                 }))
      return true;
  }
  return false;
}

/// How well a source fits to the place of a declaration: the build names it, it
/// has the header's name, and the nearer its folder the better.
std::tuple<bool, bool, unsigned>
ProjectSources::fitness(StringRef Source, StringRef DeclaredIn) {
  return {isListed(Source),
          sys::path::stem(Source) == sys::path::stem(DeclaredIn),
          sharedFolders(Source, DeclaredIn)};
}

std::vector<std::string>
ProjectSources::defining(ArrayRef<MissingFunction> Missing,
                         ArrayRef<std::string> Known) {
  std::vector<std::string> Sources;
  for (const auto &[Path, File] : Files)
    if (isSource(Path) && !is_contained(Known, Path))
      Sources.push_back(Path);
  std::vector<std::string> Result;
  for (const MissingFunction &F : Missing) {
    // One that is taken for another function may have this one, too.
    if (any_of(Result, [&](StringRef S) { return defines(S, F); }))
      continue;
    const std::string *Best = nullptr;
    bool Ambiguous = false;
    for (const std::string &Source : Sources) {
      // What a header declares is defined where the header is included.
      if (isHeader(F.DeclaredIn) && !reads(Source, F.DeclaredIn))
        continue;
      if (!defines(Source, F) || hasMain(Source))
        continue;
      const auto Fits = fitness(Source, F.DeclaredIn);
      const auto Fitted = Best ? fitness(*Best, F.DeclaredIn) : Fits;
      if (Best && Fits < Fitted)
        continue;
      Ambiguous = Best && Fits == Fitted;
      Best = &Source;
    }
    // Of two that fit alike neither is known to be the program's.
    if (Best && !Ambiguous)
      Result.push_back(*Best);
  }
  return Result;
}

/// Whether the program of `Main` uses a source that reads `File`: what a source
/// defines is declared in the header of its name.
bool ProjectSources::usesReaderOf(const std::string &Main, StringRef File) {
  for (const std::string &Header : readBy(Main)) {
    if (!isHeader(Header))
      continue;
    // A copy: reading files may add to the lists.
    const std::vector<std::string> OfItsName =
        SourcesByStem.lookup(sys::path::stem(Header));
    if (any_of(OfItsName, [&](const std::string &Source) {
          return Source != Main && reads(Source, Header) &&
                 reads(Source, File);
        }))
      return true;
  }
  return false;
}

std::vector<std::string> ProjectSources::programsWith(StringRef File) {
  std::vector<std::string> Mains;
  for (const auto &[Path, Source] : Files)
    if (isSource(Path) && hasMain(Path))
      Mains.push_back(Path);
  std::vector<std::string> Result;
  copy_if(Mains, std::back_inserter(Result), [&](const std::string &Main) {
    return reads(Main, File) || usesReaderOf(Main, File);
  });
  if (!Result.empty() || !isSource(File))
    return Result;
  // One that declares what it uses itself, without a header: beside it.
  for (const std::string &Main : Mains)
    if (sys::path::parent_path(Main) == sys::path::parent_path(File))
      Result.push_back(Main);
  // Several programs in one folder are each complete in their own source.
  if (Result.size() > MaxMainsBeside)
    Result.clear();
  return Result;
}

} // namespace accel::migrate
