//===- AtomicFile.cpp - Files that are never torn -------------------------===//

#include "AtomicFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;

namespace accel::migrate {

Error fileError(StringRef Path, std::error_code Code) {
  return createStringError(Code, "'" + Path + "': " + Code.message());
}

Expected<std::string> readFile(StringRef Path) {
  auto Buffer = MemoryBuffer::getFile(Path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!Buffer)
    return fileError(Path, Buffer.getError());
  return (*Buffer)->getBuffer().str();
}

/// What stands between a file's name and the digits in its new text's name.
static constexpr llvm::StringLiteral Mark = ".accel-";
static constexpr size_t DigitCount = 8;

AtomicFile::AtomicFile(AtomicFile &&Other)
    : Path(std::move(Other.Path)), Temporary(std::move(Other.Temporary)) {
  Other.Temporary.clear();
}

AtomicFile::~AtomicFile() {
  if (Temporary.empty())
    return;
  sys::fs::remove(Temporary);
  sys::DontRemoveFileOnSignal(Temporary);
}

Expected<AtomicFile> AtomicFile::create(StringRef Path, StringRef Text) {
  int Descriptor = -1;
  SmallString<256> Temporary;
  if (std::error_code Code = sys::fs::createUniqueFile(
          Path + Mark + std::string(DigitCount, '%'), Descriptor, Temporary,
          sys::fs::OF_None, sys::fs::all_read | sys::fs::owner_write))
    return fileError(Path, Code);
  sys::RemoveFileOnSignal(Temporary);
  AtomicFile File(Path.str(), std::string(Temporary));
  raw_fd_ostream OS(Descriptor, /*shouldClose=*/true);
  OS << Text;
  OS.flush();
  std::error_code Code = OS.error();
  sys::fs::file_status Status;
  if (!Code && !sys::fs::status(Path, Status)) {
    // The owner first: changing it takes permissions away. Who may not do it
    // becomes the owner.
    if (::fchown(Descriptor, Status.getUser(), Status.getGroup()))
      (void)::fchown(Descriptor, -1, Status.getGroup());
    Code = sys::fs::setPermissions(Descriptor, Status.permissions());
  }
  if (!Code && ::fsync(Descriptor))
    Code = std::error_code(errno, std::generic_category());
  OS.clear_error();
  if (Code)
    return fileError(Path, Code);
  return File;
}

void AtomicFile::removeLeftovers(StringRef Path) {
  StringRef Name = sys::path::filename(Path);
  std::vector<std::string> Found;
  std::error_code Code;
  for (sys::fs::directory_iterator It(sys::path::parent_path(Path), Code), End;
       It != End && !Code; It.increment(Code)) {
    StringRef Rest = sys::path::filename(It->path());
    if (Rest.consume_front(Name) && Rest.consume_front(Mark) &&
        Rest.size() == DigitCount && all_of(Rest, isHexDigit))
      Found.push_back(It->path());
  }
  for (const std::string &Leftover : Found)
    sys::fs::remove(Leftover);
}

void syncFolder(StringRef Folder) {
  int Descriptor = ::open(Folder.str().c_str(), O_RDONLY | O_DIRECTORY);
  if (Descriptor < 0)
    return;
  ::fsync(Descriptor);
  ::close(Descriptor);
}

Error AtomicFile::commit() {
  if (std::error_code Code = sys::fs::rename(Temporary, Path))
    return fileError(Path, Code);
  sys::DontRemoveFileOnSignal(Temporary);
  Temporary.clear();
  syncFolder(sys::path::parent_path(Path));
  return Error::success();
}

Expected<FolderLock> FolderLock::acquire(StringRef Folder) {
  while (true) {
    if (std::error_code Code = sys::fs::create_directories(Folder))
      return fileError(Folder, Code);
    const std::string Name = Folder.str();
    int Descriptor = ::open(Name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (Descriptor < 0) {
      if (errno == ENOENT)
        continue; // Taken away in between.
      return fileError(Folder, std::error_code(errno, std::generic_category()));
    }
    FolderLock Lock(Descriptor);
    // Not every file system can lock. Then two runs at once are the person's
    // own affair.
    (void)::flock(Descriptor, LOCK_EX);
    struct stat Held, There;
    if (!::fstat(Descriptor, &Held) && !::stat(Name.c_str(), &There) &&
        Held.st_dev == There.st_dev && Held.st_ino == There.st_ino)
      return Lock;
    // The last holder removed the folder.
  }
}

FolderLock::FolderLock(FolderLock &&Other) : Descriptor(Other.Descriptor) {
  Other.Descriptor = -1;
}

FolderLock::~FolderLock() {
  if (Descriptor >= 0)
    ::close(Descriptor);
}

Error writeAtomically(StringRef Path, StringRef Text) {
  Expected<AtomicFile> File = AtomicFile::create(Path, Text);
  if (!File)
    return File.takeError();
  return File->commit();
}

} // namespace accel::migrate
