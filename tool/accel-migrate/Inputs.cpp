//===- Inputs.cpp - The files that are named on the command line ----------===//

#include "Inputs.h"

#include "accel/migrate/Frontend.h"
#include "accel/migrate/ProjectSources.h"
#include "accel/migrate/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace accel::migrate;

/// The sources below a folder, in the order of their names; hidden folders,
/// build folders and links to folders are left out.
static void sourcesBelow(StringRef Dir, std::vector<std::string> &Sources) {
  std::vector<std::string> Files, Folders;
  std::error_code Code;
  for (sys::fs::directory_iterator It(Dir, Code, /*follow_symlinks=*/false), End;
       It != End && !Code; It.increment(Code)) {
    StringRef Name = sys::path::filename(It->path());
    if (Name.starts_with("."))
      continue;
    if (It->type() == sys::fs::file_type::directory_file) {
      if (!sys::fs::exists(It->path() + "/CMakeCache.txt"))
        Folders.push_back(It->path());
    } else if (isSource(Name)) {
      Files.push_back(It->path());
    }
  }
  sort(Files);
  sort(Folders);
  append_range(Sources, Files);
  for (const std::string &Folder : Folders)
    sourcesBelow(Folder, Sources);
}

bool accel::migrate::resolveFiles(std::vector<std::string> &Files) {
  std::vector<std::string> Real;
  bool Good = true;
  auto Complain = [&](StringRef Name, StringRef What) {
    errs() << "accel-migrate: error: '" << Name << "': " << What << '\n';
    Good = false;
  };
  auto Add = [&](StringRef Name) {
    std::string Path = realPath(Name);
    if (!is_contained(Real, Path))
      Real.push_back(std::move(Path));
  };
  for (const std::string &Name : Files) {
    sys::fs::file_status Status;
    if (std::error_code Code = sys::fs::status(Name, Status)) {
      Complain(Name, Code.message());
    } else if (sys::fs::is_directory(Status)) {
      std::vector<std::string> Sources;
      sourcesBelow(Name, Sources);
      if (Sources.empty())
        Complain(Name, "no sources (.cpp, .cc, .cxx, .c++, .C) in this folder");
      for_each(Sources, Add);
    } else if (!sys::fs::is_regular_file(Status)) {
      Complain(Name, "not a file");
    } else {
      Add(Name);
    }
  }
  Files = std::move(Real);
  return Good;
}

bool accel::migrate::hasLine(StringRef File, unsigned Line) {
  auto Buffer = MemoryBuffer::getFile(File);
  if (!Buffer) {
    errs() << "accel-migrate: error: '" << File
           << "': " << Buffer.getError().message() << '\n';
    return false;
  }
  StringRef Text = (*Buffer)->getBuffer();
  size_t Lines = Text.count('\n') + (!Text.empty() && Text.back() != '\n');
  if (Line <= Lines)
    return true;
  errs() << "accel-migrate: error: '" << displayPath(File) << "' has " << Lines
         << " lines, there is no line " << Line << '\n';
  return false;
}
