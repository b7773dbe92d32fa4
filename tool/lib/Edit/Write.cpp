//===- Write.cpp - Migrated files on the disk, and back -------------------===//

#include "accel/migrate/Write.h"

#include "AtomicFile.h"
#include "Manifest.h"

#include "accel/migrate/Findings.h"

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

/// Puts all texts in their places, or none of them.
static Error replaceAll(ArrayRef<std::pair<std::string, std::string>> NewTexts) {
  std::vector<AtomicFile> Pending;
  std::vector<std::string> Old;
  for (const auto &[Path, Text] : NewTexts) {
    Expected<AtomicFile> File = AtomicFile::create(Path, Text);
    if (!File)
      return File.takeError();
    Pending.push_back(std::move(*File));
    Expected<std::string> Before = readFile(Path);
    if (!Before)
      return Before.takeError();
    Old.push_back(std::move(*Before));
  }
  for (size_t I = 0; I != Pending.size(); ++I) {
    Error E = Pending[I].commit();
    if (!E)
      continue;
    for (size_t Done = 0; Done != I; ++Done)
      E = joinErrors(std::move(E), writeAtomically(NewTexts[Done].first, Old[Done]));
    return E;
  }
  return Error::success();
}

Error writeInPlace(ArrayRef<FileEdit> Files, StringRef StateDir) {
  if (Files.empty())
    return Error::success();
  std::vector<std::pair<std::string, std::string>> NewTexts;
  for (const FileEdit &File : Files) {
    Expected<std::string> Now = readFile(File.File);
    if (!Now)
      return Now.takeError();
    if (*Now != File.Before)
      return createStringError("'" + File.File +
                               "' changed while it was analysed; run again");
    NewTexts.emplace_back(File.File, File.After);
  }
  Expected<Manifest> M = Manifest::forEdits(Files, StateDir);
  if (!M)
    return M.takeError();
  if (Error E = M->save())
    return E;
  Error E = replaceAll(NewTexts);
  if (E)
    M->remove();
  return E;
}

Error writeTree(ArrayRef<FileEdit> Files, StringRef Root, StringRef OutRoot) {
  for (const FileEdit &File : Files) {
    SmallString<256> Path(OutRoot);
    sys::path::append(Path, StringRef(File.File).drop_front(Root.size()));
    if (std::error_code Code =
            sys::fs::create_directories(sys::path::parent_path(Path)))
      return fileError(sys::path::parent_path(Path), Code);
    if (Error E = writeAtomically(Path, File.After))
      return E;
    sys::fs::file_status Status;
    if (!sys::fs::status(File.File, Status))
      sys::fs::setPermissions(Path, Status.permissions());
  }
  return Error::success();
}

/// The manifests that hold for a folder, the newest first.
static std::vector<std::string> manifestsAbove(StringRef Folder) {
  for (; !Folder.empty(); Folder = sys::path::parent_path(Folder)) {
    std::vector<std::string> Found = manifestsIn((Folder + "/.accel/undo").str());
    if (!Found.empty())
      return Found;
  }
  return {};
}

Expected<UndoResult> undo(ArrayRef<std::string> Files, StringRef StateDir) {
  SmallString<256> Start;
  std::error_code Code = sys::fs::real_path(
      Files.empty() ? "." : sys::path::parent_path(Files.front()), Start);
  if (Code)
    return fileError(Files.empty() ? "." : Files.front(), Code);
  std::vector<std::string> Candidates =
      StateDir.empty() ? manifestsAbove(Start) : manifestsIn(StateDir);

  for (const std::string &Location : Candidates) {
    Expected<Manifest> M = Manifest::load(Location);
    if (!M)
      return M.takeError();
    std::vector<Manifest::Entry> Chosen, Others;
    for (Manifest::Entry &E : M->Entries)
      (Files.empty() || is_contained(Files, M->pathOf(E)) ? Chosen : Others)
          .push_back(std::move(E));
    if (Chosen.empty())
      continue;

    UndoResult Result;
    std::vector<std::pair<std::string, std::string>> NewTexts;
    for (const Manifest::Entry &E : Chosen) {
      std::string Path = M->pathOf(E);
      Expected<std::string> Now = readFile(Path);
      std::string Hash = Now ? hashOf(*Now) : "";
      if (!Now) {
        Result.Refusals.push_back(makeFinding(
            "ACL0020", {Path, 0, 0}, toString(Now.takeError()),
            "Put the migrated file back, or undo the other files by name."));
      } else if (Hash == E.AfterHash) {
        NewTexts.emplace_back(Path, E.Original);
      } else if (Hash != E.BeforeHash) {
        Result.Refusals.push_back(makeFinding(
            "ACL0020", {Path, 0, 0},
            "the file has changed since it was migrated; restoring it would "
            "lose that",
            "Save what you changed and put the migrated text back; the "
            "original is in '" + Location + "'."));
      }
    }
    if (!Result.Refusals.empty())
      return Result;
    if (Error E = replaceAll(NewTexts))
      return E;
    for (const auto &[Path, Text] : NewTexts)
      Result.Restored.push_back(Path);
    if (Others.empty()) {
      M->remove();
      return Result;
    }
    M->Entries = std::move(Others);
    if (Error E = M->save())
      return E;
    return Result;
  }
  return createStringError(
      std::errc::no_such_file_or_directory,
      StateDir.empty()
          ? "there is no migration to undo (no .accel/undo here or above)"
          : "there is no migration to undo in the given folder");
}

} // namespace accel::migrate
