//===- PrefixCache.cpp - LibTorch, precompiled ----------------------------===//

#include "PrefixCache.h"

#include "clang/Basic/Version.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendActions.h"
#include "clang/Frontend/Utils.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/LockFileManager.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

/// pruneCache only touches files that are named like this.
static constexpr llvm::StringLiteral FilePrefix = "llvmcache-torch-";

/// Long enough for a slow machine to precompile LibTorch.
static constexpr unsigned LockSeconds = 180;

PrefixCache::PrefixCache(std::function<void()> OnPrecompile)
    : OnPrecompile(std::move(OnPrecompile)) {
  SmallString<256> Path;
  if (!sys::path::cache_directory(Path))
    return;
  sys::path::append(Path, "accel");
  if (sys::fs::create_directories(Path))
    return;
  Dir = std::string(Path);

  // It is written once and stays: a precompiled header notes the time of
  // every file that it was made from.
  sys::path::append(Path, "torch_prefix.h");
  Header = std::string(Path);
  if (sys::fs::exists(Header))
    return;
  if (Error E = writeToOutput(Header, [](raw_ostream &OS) {
        OS << "#include <torch/torch.h>\n";
        return Error::success();
      })) {
    consumeError(std::move(E));
    Dir.clear();
  }
}

static IntrusiveRefCntPtr<DiagnosticsEngine> silentDiagnostics() {
  return CompilerInstance::createDiagnostics(new DiagnosticOptions,
                                             new IgnoringDiagConsumer);
}

/// The invocation that precompiles `Header`, and its cc1 arguments.
static std::unique_ptr<CompilerInvocation>
prefixInvocation(const UnitCommand &Command, StringRef Header,
                 std::vector<std::string> &CC1Args) {
  std::vector<std::string> Words = Command.forFile(Header, "c++-header");
  // Headers that the command includes before the file are not LibTorch's.
  std::vector<const char *> Pointers;
  for (size_t I = 0; I != Words.size(); ++I) {
    StringRef Word = Words[I];
    if (Word == "-include" || Word == "-imacros")
      ++I;
    else if (!Word.starts_with("-Wno-"))
      Pointers.push_back(Words[I].c_str());
  }
  IntrusiveRefCntPtr<vfs::FileSystem> FS = vfs::createPhysicalFileSystem();
  FS->setCurrentWorkingDirectory(Command.Directory);
  CreateInvocationOptions Options;
  Options.Diags = silentDiagnostics();
  Options.VFS = FS;
  Options.CC1Args = &CC1Args;
  return createInvocation(Pointers, Options);
}

static std::string keyOf(ArrayRef<std::string> CC1Args,
                         const UnitCommand &Command) {
  SHA256 Hash;
  auto Add = [&](StringRef Text) {
    Hash.update(Text);
    Hash.update(StringRef("\0", 1));
  };
  Add(getClangFullVersion());
  for (size_t I = 0; I != CC1Args.size(); ++I) {
    StringRef Word = CC1Args[I];
    // Where the command was started has no bearing on the headers.
    if (Word.starts_with("-fdebug-compilation-dir") ||
        Word.starts_with("-fcoverage-compilation-dir"))
      continue;
    Add(Word);
  }
  for (const std::string &TorchDir : Command.TorchDirs)
    for (StringRef Name : {"torch/torch.h", "torch/all.h", "torch/version.h",
                           "torch/headeronly/version.h"}) {
      sys::fs::file_status Status;
      if (sys::fs::status(TorchDir + "/" + Name, Status))
        continue;
      Add(Name);
      Add(std::to_string(Status.getSize()));
      Add(std::to_string(
          Status.getLastModificationTime().time_since_epoch().count()));
    }
  return toHex(Hash.final(), /*LowerCase=*/true).substr(0, 32);
}

static bool precompile(std::unique_ptr<CompilerInvocation> Invocation,
                       StringRef Directory, StringRef Path) {
  SmallString<256> Temporary;
  if (sys::fs::createUniqueFile(Path + ".%%%%%%.tmp", Temporary))
    return false;

  Invocation->getFrontendOpts().ProgramAction = frontend::GeneratePCH;
  Invocation->getFrontendOpts().OutputFile = std::string(Temporary);
  Invocation->getFrontendOpts().DisableFree = false;
  // Without it every user of the header instantiates what the header needs,
  // which takes longer than all the rest.
  Invocation->getLangOpts().PCHInstantiateTemplates = true;

  CompilerInstance Compiler;
  Compiler.setInvocation(std::move(Invocation));
  Compiler.createDiagnostics(new IgnoringDiagConsumer);
  IntrusiveRefCntPtr<vfs::FileSystem> FS = vfs::createPhysicalFileSystem();
  FS->setCurrentWorkingDirectory(Directory);
  Compiler.createFileManager(FS);
  GeneratePCHAction Action;
  bool Good = Compiler.ExecuteAction(Action) &&
              !Compiler.getDiagnostics().hasErrorOccurred() &&
              !sys::fs::rename(Temporary, Path);
  if (!Good)
    sys::fs::remove(Temporary);
  return Good;
}

std::string PrefixCache::get(const UnitCommand &Command) {
  if (Dir.empty() || Command.TorchDirs.empty())
    return "";
  std::vector<std::string> CC1Args;
  std::unique_ptr<CompilerInvocation> Invocation =
      prefixInvocation(Command, Header, CC1Args);
  if (!Invocation)
    return "";
  std::string Key = keyOf(CC1Args, Command);
  auto [Entry, IsNew] = Known.try_emplace(Key);
  if (!IsNew)
    return Entry->second;

  SmallString<256> Path(Dir);
  sys::path::append(Path, FilePrefix + Key + ".pch");
  while (!sys::fs::exists(Path)) {
    LockFileManager Lock(Path);
    if (Lock.getState() == LockFileManager::LFS_Shared &&
        Lock.waitForUnlock(LockSeconds) != LockFileManager::Res_Timeout)
      continue;
    if (OnPrecompile)
      OnPrecompile();
    // The lock only saves work; without it two processes do the same.
    if (!precompile(std::move(Invocation), Command.Directory, Path))
      return "";
    CachePruningPolicy Policy;
    Policy.MaxSizeFiles = 12;
    Policy.MaxSizePercentageOfAvailableSpace = 25;
    pruneCache(Dir, Policy);
  }
  Entry->second = std::string(Path);
  return Entry->second;
}

void PrefixCache::discard(StringRef Path) {
  sys::fs::remove(Path);
  for (auto Entry = Known.begin(); Entry != Known.end();)
    Entry = Entry->second == Path ? Known.erase(Entry) : std::next(Entry);
}

} // namespace accel::migrate
