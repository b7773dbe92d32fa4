//===- Write.cpp - Migrated files on the disk, and back -------------------===//

#include "accel/migrate/Write.h"

#include "AtomicFile.h"
#include "Manifest.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/Frontend.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace accel::migrate {

std::string commonFolder(ArrayRef<std::string> Files) {
  StringRef Common = sys::path::parent_path(Files.front());
  for (StringRef File : Files.drop_front())
    while (!Common.empty() &&
           !(File.starts_with(Common) && File.substr(Common.size()).starts_with("/")))
      Common = Common == "/" ? "" : sys::path::parent_path(Common);
  return Common == "/" ? "" : Common.str();
}

namespace {

struct Replacement {
  std::string Path;
  std::string Old, New;
};

} // namespace

/// Puts all texts in their places, or none of them. `Halfway`: an error came in
/// the middle, and some could not be taken back.
static Error replaceAll(ArrayRef<Replacement> Replacements, bool &Halfway) {
  Halfway = false;
  std::vector<AtomicFile> Pending;
  for (const Replacement &R : Replacements) {
    AtomicFile::removeLeftovers(R.Path);
    Expected<AtomicFile> File = AtomicFile::create(R.Path, R.New);
    if (!File)
      return File.takeError();
    Pending.push_back(std::move(*File));
  }
  for (const Replacement &R : Replacements) {
    Expected<std::string> Now = readFile(R.Path);
    if (!Now)
      return Now.takeError();
    if (*Now != R.Old)
      return createStringError("'" + R.Path +
                               "' changed at this moment; run again");
  }
  for (size_t I = 0; I != Pending.size(); ++I) {
    Error E = Pending[I].commit();
    if (!E)
      continue;
    for (const Replacement &Done : Replacements.take_front(I))
      if (Error Again = writeAtomically(Done.Path, Done.Old)) {
        Halfway = true;
        E = joinErrors(std::move(E), std::move(Again));
      }
    return E;
  }
  return Error::success();
}

Error writeInPlace(ArrayRef<FileEdit> Files, StringRef StateDir) {
  if (Files.empty())
    return Error::success();
  std::vector<Replacement> Replacements;
  std::vector<std::string> Paths;
  for (const FileEdit &File : Files) {
    Expected<std::string> Now = readFile(File.File);
    if (!Now)
      return Now.takeError();
    if (*Now != File.Before)
      return createStringError("'" + File.File +
                               "' changed while it was analysed; run again");
    Replacements.push_back({File.File, File.Before, File.After});
    Paths.push_back(File.File);
  }
  std::string Root = commonFolder(Paths);
  Expected<FolderLock> Lock =
      FolderLock::acquire(Manifest::folderFor(Root, StateDir));
  if (!Lock)
    return Lock.takeError();
  Manifest M = Manifest::forEdits(Files, Root, StateDir);
  Error E = M.save();
  bool Halfway = false;
  if (!E)
    E = replaceAll(Replacements, Halfway);
  if (E && !Halfway)
    M.remove();
  return E;
}

Error writeTree(ArrayRef<FileEdit> Files, StringRef Root, StringRef OutRoot) {
  for (const FileEdit &File : Files) {
    SmallString<256> Path(OutRoot);
    sys::path::append(Path, StringRef(File.File).drop_front(Root.size()));
    if (std::error_code Code =
            sys::fs::create_directories(sys::path::parent_path(Path)))
      return fileError(sys::path::parent_path(Path), Code);
    AtomicFile::removeLeftovers(Path);
    if (Error E = writeAtomically(Path, File.After))
      return E;
    sys::fs::file_status Status;
    if (!sys::fs::status(File.File, Status))
      sys::fs::setPermissions(Path, Status.permissions());
  }
  return Error::success();
}

Error checkOutput(StringRef Path) {
  sys::fs::file_status Status;
  std::error_code Code = sys::fs::status(Path, Status);
  if (!Code && sys::fs::is_directory(Status))
    return fileError(Path, std::make_error_code(std::errc::is_a_directory));
  if (!Code && !sys::fs::is_regular_file(Status))
    return Error::success();
  // The new file is written beside the old one.
  StringRef Folder = sys::path::parent_path(Path);
  if (Folder.empty())
    Folder = ".";
  if (!sys::fs::is_directory(Folder))
    return fileError(Folder,
                     std::make_error_code(sys::fs::exists(Folder)
                                              ? std::errc::not_a_directory
                                              : std::errc::no_such_file_or_directory));
  if (std::error_code Denied =
          sys::fs::access(Folder, sys::fs::AccessMode::Write))
    return fileError(Path, Denied);
  return Error::success();
}

Error writeOutput(StringRef Path, StringRef Text) {
  sys::fs::file_status Status;
  if (sys::fs::status(Path, Status) || sys::fs::is_regular_file(Status))
    // A link stays one: what it leads to is replaced.
    return writeAtomically(sys::fs::exists(Path) ? realPath(Path) : Path.str(),
                           Text);
  std::error_code Code;
  raw_fd_ostream OS(Path, Code, sys::fs::CD_OpenExisting, sys::fs::FA_Write,
                    sys::fs::OF_None);
  if (Code)
    return fileError(Path, Code);
  OS << Text;
  OS.flush();
  Code = OS.error();
  OS.clear_error();
  return Code ? fileError(Path, Code) : Error::success();
}

/// The undo folder that holds for a folder: its own or the nearest one above
/// it that has a manifest. Empty if there is none.
static std::string undoFolderAbove(StringRef Folder) {
  for (; !Folder.empty(); Folder = sys::path::parent_path(Folder)) {
    std::string Undo = Manifest::folderFor(Folder, "");
    if (!manifestsIn(Undo).empty())
      return Undo;
  }
  return "";
}

/// Sorts out what is to be done with one file of a manifest.
static void judge(const Manifest &M, const Manifest::Entry &E,
                  UndoResult &Result, std::vector<Replacement> &Replacements) {
  std::string Path = M.pathOf(E);
  Expected<std::string> Now = readFile(Path);
  if (!Now) {
    Result.Refusals.push_back(makeFinding(
        "ACL0020", {Path, 0, 0}, toString(Now.takeError()),
        "Put the migrated file back, or undo the other files by name."));
    return;
  }
  std::string Hash = hashOf(*Now);
  if (Hash == E.AfterHash)
    Replacements.push_back({Path, std::move(*Now), E.Original});
  else if (Hash == E.BeforeHash)
    Result.Unchanged.push_back(Path);
  else
    Result.Refusals.push_back(makeFinding(
        "ACL0020", {Path, 0, 0},
        "the file has changed since it was migrated; restoring it would lose "
        "that",
        "Save what you changed and put the migrated text back; the original "
        "is in '" + M.Location + "'."));
}

Expected<UndoResult> undo(ArrayRef<std::string> Files, StringRef StateDir) {
  SmallString<256> Start;
  std::error_code Code = sys::fs::real_path(
      Files.empty() ? "." : sys::path::parent_path(Files.front()), Start);
  if (Code)
    return fileError(Files.empty() ? "." : Files.front(), Code);
  std::string Folder =
      StateDir.empty() ? undoFolderAbove(Start) : StateDir.str();
  auto Nothing = [&] {
    return createStringError(
        std::errc::no_such_file_or_directory,
        StateDir.empty()
            ? "there is no migration to undo (no .accel/undo here or above)"
            : "there is no migration to undo in the given folder");
  };
  if (Folder.empty() || !sys::fs::is_directory(Folder))
    return Nothing();
  Expected<FolderLock> Lock = FolderLock::acquire(Folder);
  if (!Lock)
    return Lock.takeError();

  for (const std::string &Location : manifestsIn(Folder)) {
    Expected<Manifest> M = Manifest::load(Location);
    if (!M)
      return M.takeError();
    std::vector<Manifest::Entry> Others;
    UndoResult Result;
    std::vector<Replacement> Replacements;
    bool IsChosen = false;
    for (Manifest::Entry &E : M->Entries) {
      if (!Files.empty() && !is_contained(Files, M->pathOf(E))) {
        Others.push_back(std::move(E));
        continue;
      }
      IsChosen = true;
      judge(*M, E, Result, Replacements);
    }
    if (!IsChosen)
      continue;
    if (!Result.Refusals.empty())
      return Result;
    bool Halfway;
    if (Error E = replaceAll(Replacements, Halfway))
      return E;
    for (const Replacement &R : Replacements)
      Result.Restored.push_back(R.Path);
    for (const std::string &Path : Result.Unchanged)
      AtomicFile::removeLeftovers(Path);
    if (Others.empty()) {
      M->remove();
      return Result;
    }
    M->Entries = std::move(Others);
    if (Error E = M->save())
      return E;
    return Result;
  }
  return Nothing();
}

std::map<std::string, std::string> originalsOf(const std::string &File,
                                               StringRef StateDir) {
  std::map<std::string, std::string> Originals;
  std::string Folder = StateDir.empty()
                           ? undoFolderAbove(sys::path::parent_path(File))
                           : StateDir.str();
  for (const std::string &Location : manifestsIn(Folder)) {
    Expected<Manifest> M = Manifest::load(Location);
    if (!M) {
      // `undo` says what is wrong with it.
      consumeError(M.takeError());
      continue;
    }
    for (const Manifest::Entry &E : M->Entries) {
      Expected<std::string> Now = readFile(M->pathOf(E));
      if (Now && hashOf(*Now) == E.AfterHash)
        Originals[M->pathOf(E)] = E.Original;
      else if (!Now)
        consumeError(Now.takeError());
    }
    if (Originals.count(File))
      return Originals;
    Originals.clear();
  }
  return Originals;
}

} // namespace accel::migrate
