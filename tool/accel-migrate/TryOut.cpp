//===- TryOut.cpp - Is the migrated program the original? -----------------===//

#include "TryOut.h"

#include "accel/migrate/Write.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/BinaryFormat/Magic.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <set>

using namespace llvm;

namespace accel::migrate {

namespace {

/// Larger files are data: the copies link to them.
constexpr uint64_t CopyLimit = uint64_t(16) << 20;

constexpr char OneCallProgram[] = "accel-verify-program";

std::string inFolder(StringRef Folder, const Twine &Name) {
  SmallString<256> Path(Folder);
  sys::path::append(Path, Name);
  return std::string(Path);
}

Error failed(std::error_code Code, const Twine &What) {
  return createStringError(Code, What + ": " + Code.message());
}

std::string quoted(StringRef Text) {
  std::string Result = "'";
  for (char C : Text)
    Result += C == '\'' ? std::string("'\\''") : std::string(1, C);
  return Result + "'";
}

std::error_code copyFile(const std::string &From, const std::string &To) {
  uint64_t Size;
  if (std::error_code Code = sys::fs::file_size(From, Size))
    return Code;
  if (Size > CopyLimit)
    return sys::fs::create_link(From, To);
  if (std::error_code Code = sys::fs::copy_file(From, To))
    return Code;
  ErrorOr<sys::fs::perms> Permissions = sys::fs::getPermissions(From);
  return Permissions ? sys::fs::setPermissions(To, *Permissions)
                     : Permissions.getError();
}

/// Without hidden folders and build folders.
Error copyTree(const std::string &From, const std::string &To) {
  if (std::error_code Code = sys::fs::create_directories(To))
    return failed(Code, To);
  std::error_code Code;
  for (sys::fs::directory_iterator It(From, Code), End; It != End && !Code;
       It.increment(Code)) {
    StringRef Name = sys::path::filename(It->path());
    std::string Copy = inFolder(To, Name);
    sys::fs::file_status Status;
    if (sys::fs::status(It->path(), Status))
      continue; // a link to nowhere
    if (sys::fs::is_directory(Status)) {
      if (Name.starts_with(".") ||
          sys::fs::exists(It->path() + "/CMakeCache.txt"))
        continue;
      if (It->type() == sys::fs::file_type::symlink_file) {
        SmallString<256> Real;
        if (!sys::fs::real_path(It->path(), Real))
          sys::fs::create_link(Real, Copy);
      } else if (Error E = copyTree(It->path(), Copy)) {
        return E;
      }
    } else if (sys::fs::is_regular_file(Status)) {
      SmallString<256> Real;
      if (std::error_code Bad = sys::fs::real_path(It->path(), Real))
        return failed(Bad, It->path());
      if (std::error_code Bad = copyFile(std::string(Real), Copy))
        return failed(Bad, It->path());
    }
  }
  return Code ? failed(Code, From) : Error::success();
}

/// Executables, without those that CMake makes for itself.
void executablesBelow(StringRef Dir, std::set<std::string> &Found) {
  std::error_code Code;
  for (sys::fs::directory_iterator It(Dir, Code, /*follow_symlinks=*/false),
       End;
       It != End && !Code; It.increment(Code)) {
    StringRef Name = sys::path::filename(It->path());
    if (It->type() == sys::fs::file_type::directory_file) {
      if (Name != "CMakeFiles" && !Name.starts_with("."))
        executablesBelow(It->path(), Found);
      continue;
    }
    file_magic Magic;
    if (It->type() == sys::fs::file_type::regular_file &&
        sys::fs::can_execute(It->path()) &&
        !identify_magic(It->path(), Magic) &&
        (Magic == file_magic::elf_executable ||
         (Magic == file_magic::elf_shared_object && !Name.contains(".so"))))
      Found.insert(It->path());
  }
}

/// Of several files; a CMakeLists.txt does not mark it, as it does for one file
/// (Frontend.h).
std::string projectOf(ArrayRef<std::string> Files) {
  std::string Common = commonFolder(Files);
  for (StringRef Dir = Common; !Dir.empty(); Dir = sys::path::parent_path(Dir))
    if (sys::fs::exists(inFolder(Dir, ".git")))
      return Dir.str();
  return Common;
}

class Attempt {
public:
  Attempt(ArrayRef<FileEdit> Edits, const TryOutOptions &Options)
      : Edits(Edits), Options(Options) {}
  ~Attempt() {
    if (!Folder.empty())
      sys::fs::remove_directories(Folder);
  }

  Expected<TryOutResult> run();

private:
  Error prepare();
  std::string buildCommand() const;
  bool build(StringRef Copy);
  Expected<std::string> programOf(StringRef Copy);
  int shell(const std::string &Command, const std::string *Log);
  raw_ostream &talk() { return Options.Quiet ? nulls() : errs(); }

  ArrayRef<FileEdit> Edits;
  const TryOutOptions &Options;
  std::string Root;
  /// The current folder below the project; empty: the project itself.
  std::string Below;
  std::string Accel;
  SmallString<128> Folder;
  std::set<std::string> Before;
};

} // namespace

Error Attempt::prepare() {
  Accel = inFolder(sys::path::parent_path(Options.Executable), "accel");
  if (!sys::fs::can_execute(Accel))
    return createStringError(
        std::make_error_code(std::errc::no_such_file_or_directory),
        Twine("--verify needs ") + Accel + ", which comes with the runtime");
  std::vector<std::string> Files = Options.Sources;
  for (const FileEdit &Edit : Edits)
    Files.push_back(Edit.File);
  Root = Options.Root.empty() ? projectOf(Files) : Options.Root;
  SmallString<256> Current;
  if (!sys::fs::current_path(Current)) {
    SmallString<256> Real;
    StringRef Rest;
    if (!sys::fs::real_path(Current, Real) &&
        (Rest = Real).consume_front(Root) &&
        (Rest.empty() || Rest.consume_front("/")))
      Below = Rest.str();
  }
  if (std::error_code Code =
          sys::fs::createUniqueDirectory("accel-verify", Folder))
    return failed(Code, "a temporary folder");
  for (const char *Copy : {"original", "migrated"})
    if (Error E = copyTree(Root, inFolder(Folder, Copy)))
      return E;
  return writeTree(Edits, Root, inFolder(Folder, "migrated"));
}

std::string Attempt::buildCommand() const {
  if (!Options.Build.empty())
    return Options.Build;
  if (sys::fs::exists(inFolder(Root, "CMakeLists.txt")))
    return "cmake -S \"$ACCEL_PROJECT\" "
           "-B \"$ACCEL_PROJECT\"/accel-verify-build "
           "-DCMAKE_BUILD_TYPE=Release && "
           "cmake --build \"$ACCEL_PROJECT\"/accel-verify-build --parallel";
  std::string Command = "c++ -O2 $(accel flags --compile)";
  for (const std::string &Flag : Options.Flags)
    Command += " " + quoted(Flag);
  for (StringRef Source : Options.Sources) {
    Source.consume_front(Root);
    Command += " \"$ACCEL_PROJECT\"" + quoted(Source);
  }
  return Command + " -o \"$ACCEL_PROJECT\"/" + OneCallProgram +
         " $(accel flags --link)";
}

/// Output goes to the file `Log`, or where ours goes.
int Attempt::shell(const std::string &Command, const std::string *Log) {
  std::optional<StringRef> Redirects[] = {
      StringRef(), Log ? std::optional<StringRef>(*Log) : std::nullopt,
      Log ? std::optional<StringRef>(*Log) : std::nullopt};
  std::string Message;
  int Code = sys::ExecuteAndWait("/bin/sh", {"/bin/sh", "-c", Command},
                                 std::nullopt, Redirects, 0, 0, &Message);
  if (!Message.empty())
    errs() << "accel-migrate: error: /bin/sh: " << Message << '\n';
  return Code;
}

bool Attempt::build(StringRef Copy) {
  std::string Tree = inFolder(Folder, Copy);
  std::string Log = inFolder(Folder, Copy + ".log");
  talk() << "building the " << Copy << " program...\n";
  int Code = shell("export ACCEL_PROJECT=" + quoted(Tree) + "; cd " +
                       quoted(inFolder(Tree, Below)) + " && { " +
                       buildCommand() + "\n}",
                   &Log);
  if (Code == 0)
    return true;
  errs() << "accel-migrate: error: the " << Copy
         << " program could not be built (exit code " << Code << "):\n"
         << buildCommand() << '\n';
  if (auto Buffer = MemoryBuffer::getFile(Log)) {
    StringRef Text = (*Buffer)->getBuffer().rtrim();
    size_t Begin = Text.size();
    for (int Lines = 0; Lines < 30 && Begin != StringRef::npos; ++Lines)
      Begin = Text.rfind('\n', Begin);
    errs() << (Begin == StringRef::npos ? Text : Text.substr(Begin + 1))
           << '\n';
  }
  return false;
}

/// The program that was built, with the arguments of --run behind it.
Expected<std::string> Attempt::programOf(StringRef Copy) {
  std::string Tree = inFolder(Folder, Copy);
  if (!Options.Run.empty()) {
    StringRef Name = StringRef(Options.Run).ltrim().split(' ').first;
    std::string Program = inFolder(inFolder(Tree, Below), Name);
    if (sys::path::is_absolute(Name) || !sys::fs::can_execute(Program))
      return createStringError(
          std::make_error_code(std::errc::no_such_file_or_directory),
          "--run: the build has made no program '" + Name +
              "' in the project; it is named as seen from the current folder");
    return Program;
  }
  std::set<std::string> Found;
  executablesBelow(Tree, Found);
  std::vector<std::string> New;
  for (StringRef Path : Found) {
    StringRef Rest = Path;
    Rest.consume_front(Tree);
    if (!Before.count(Rest.str()))
      New.push_back(Path.str());
  }
  if (New.size() > 1)
    erase_if(New, [&](StringRef Path) {
      return none_of(Options.Sources, [&](StringRef Source) {
        return sys::path::stem(Source) == sys::path::filename(Path);
      });
    });
  if (New.size() != 1)
    return createStringError(
        std::make_error_code(std::errc::invalid_argument),
        "the build has made " +
            (New.empty() ? Twine("no program") : Twine("several programs")) +
            " of these sources; name it with --run");
  return New.front();
}

Expected<TryOutResult> Attempt::run() {
  if (Error E = prepare())
    return E;
  std::set<std::string> Found;
  std::string Tree = inFolder(Folder, "original");
  executablesBelow(Tree, Found);
  for (StringRef Path : Found) {
    Path.consume_front(Tree);
    Before.insert(Path.str());
  }

  // `accel flags`, and CMake's find_package(accel).
  std::string Bin = sys::path::parent_path(Options.Executable).str();
  std::string Prefix = sys::path::parent_path(Bin).str();
  for (auto [Name, Value] :
       {std::pair("PATH", Bin), std::pair("CMAKE_PREFIX_PATH", Prefix)}) {
    std::optional<std::string> Old = sys::Process::GetEnv(Name);
    ::setenv(Name, (Old ? Value + ":" + *Old : Value).c_str(), 1);
  }
  if (!build("original") || !build("migrated"))
    return TryOutResult::NotBuilt;
  Expected<std::string> Original = programOf("original");
  if (!Original)
    return Original.takeError();
  Expected<std::string> Migrated = programOf("migrated");
  if (!Migrated)
    return Migrated.takeError();
  std::string Arguments =
      StringRef(Options.Run).ltrim().split(' ').second.str();
  std::string Command = quoted(Accel) + " verify --original " +
                        quoted(*Original) + " --migrated " + quoted(*Migrated) +
                        " --num-processes " + quoted(Options.NumProcesses);
  int Code = shell(Command + " --double -- " + Arguments, nullptr);
  if (Code > 1) {
    talk() << "not in float64; in the program's own precision:\n";
    Code = shell(Command + " -- " + Arguments, nullptr);
  }
  return Code == 0   ? TryOutResult::Equal
         : Code == 1 ? TryOutResult::Different
                     : TryOutResult::NotCompared;
}

Expected<TryOutResult> tryOut(ArrayRef<FileEdit> Edits,
                              const TryOutOptions &Options) {
  return Attempt(Edits, Options).run();
}

} // namespace accel::migrate
