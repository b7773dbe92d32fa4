//===- AtomicFile.cpp - Files that are never torn -------------------------===//

#include "AtomicFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
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

AtomicFile::AtomicFile(AtomicFile &&Other)
    : Path(std::move(Other.Path)), Temporary(std::move(Other.Temporary)) {
  Other.Temporary.clear();
}

AtomicFile::~AtomicFile() {
  if (!Temporary.empty())
    sys::fs::remove(Temporary);
}

Expected<AtomicFile> AtomicFile::create(StringRef Path, StringRef Text) {
  int Descriptor = -1;
  SmallString<256> Temporary;
  if (std::error_code Code = sys::fs::createUniqueFile(
          Path + ".accel-%%%%%%%%", Descriptor, Temporary, sys::fs::OF_None,
          sys::fs::all_read | sys::fs::owner_write))
    return fileError(Path, Code);
  AtomicFile File(Path.str(), std::string(Temporary));
  raw_fd_ostream OS(Descriptor, /*shouldClose=*/true);
  OS << Text;
  OS.flush();
  std::error_code Code = OS.error();
  sys::fs::file_status Status;
  if (!Code && !sys::fs::status(Path, Status))
    Code = sys::fs::setPermissions(Descriptor, Status.permissions());
  if (!Code && ::fsync(Descriptor))
    Code = std::error_code(errno, std::generic_category());
  OS.clear_error();
  if (Code)
    return fileError(Path, Code);
  return File;
}

/// Makes a rename survive a power failure; a file system that cannot do it is
/// none of our business.
static void syncFolder(StringRef Folder) {
  int Descriptor = ::open(Folder.str().c_str(), O_RDONLY | O_DIRECTORY);
  if (Descriptor < 0)
    return;
  ::fsync(Descriptor);
  ::close(Descriptor);
}

Error AtomicFile::commit() {
  if (std::error_code Code = sys::fs::rename(Temporary, Path))
    return fileError(Path, Code);
  Temporary.clear();
  syncFolder(sys::path::parent_path(Path));
  return Error::success();
}

Error writeAtomically(StringRef Path, StringRef Text) {
  Expected<AtomicFile> File = AtomicFile::create(Path, Text);
  if (!File)
    return File.takeError();
  return File->commit();
}

} // namespace accel::migrate
