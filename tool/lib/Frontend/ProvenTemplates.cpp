//===- ProvenTemplates.cpp - What has compiled before ---------------------===//

#include "ProvenTemplates.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;

namespace accel::migrate {

/// Size and time of a file: another one that takes its place has others.
static std::string stampOf(StringRef File) {
  sys::fs::file_status Status;
  if (sys::fs::status(File, Status))
    return "";
  return std::to_string(Status.getSize()) + " " +
         std::to_string(
             Status.getLastModificationTime().time_since_epoch().count());
}

uint64_t ProvenTemplates::keyOf(StringRef Name) {
  // DenseSet keeps the two greatest numbers for itself.
  return xxh3_64bits(Name) >> 1;
}

ProvenTemplates::ProvenTemplates(StringRef Prefix)
    : Path((Prefix + ".proven").str()), Stamp(stampOf(Prefix)), Keys(read(Path, Stamp)) {}

DenseSet<uint64_t> ProvenTemplates::read(StringRef Path, StringRef Stamp) {
  DenseSet<uint64_t> Keys;
  auto Buffer = MemoryBuffer::getFile(Path);
  if (!Buffer || Stamp.empty())
    return Keys;
  auto [First, Text] = (*Buffer)->getBuffer().split('\n');
  if (First != Stamp)
    return Keys;
  while (!Text.empty()) {
    StringRef Line;
    std::tie(Line, Text) = Text.split('\n');
    uint64_t Key;
    if (!Line.getAsInteger(16, Key))
      Keys.insert(Key);
  }
  return Keys;
}

void ProvenTemplates::add(ArrayRef<uint64_t> More) {
  if (More.empty() || Stamp.empty())
    return;
  DenseSet<uint64_t> All = read(Path, Stamp);
  All.insert(More.begin(), More.end());
  if (Error E = writeToOutput(Path, [&](raw_ostream &OS) {
        OS << Stamp << '\n';
        for (uint64_t Key : All)
          OS << utohexstr(Key) << '\n';
        return Error::success();
      }))
    consumeError(std::move(E));
}

} // namespace accel::migrate
