//===- PrefixCache.cpp - LibTorch, precompiled ----------------------------===//

#include "PrefixCache.h"

#include "PrefixTrim.h"
#include "PrefixUses.h"
#include "Remedies.h"

#include "clang/AST/ASTConsumer.h"
#include "clang/AST/DeclTemplate.h"
#include "clang/Basic/Version.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendActions.h"
#include "clang/Frontend/MultiplexConsumer.h"
#include "clang/Frontend/Utils.h"
#include "clang/Lex/PreprocessorOptions.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/LockFileManager.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

using namespace llvm;
using namespace clang;

namespace accel::migrate {

/// pruneCache only touches files that are named like this.
static constexpr llvm::StringLiteral FilePrefix = "llvmcache-torch-";

/// To be changed when the same headers are to be written otherwise.
static constexpr llvm::StringLiteral Form = "trimmed";

/// Long enough for a slow machine to precompile LibTorch.
static constexpr unsigned LockSeconds = 180;

PrefixCache::PrefixCache(StringRef Named, std::string Installed,
                         std::function<void()> OnPrecompile)
    : OnPrecompile(std::move(OnPrecompile)) {
  SmallString<256> Path(Named);
  if (Named.empty()) {
    if (!sys::path::cache_directory(Path))
      return;
    sys::path::append(Path, "accel");
    this->Installed = std::move(Installed);
  }
  if (sys::fs::make_absolute(Path) || sys::fs::create_directories(Path))
    return;
  Dir = std::string(Path);
  TorchHeader = headerThatIncludes("torch/torch.h", "torch_prefix.h");
  AccelHeader = headerThatIncludes("accel/accel.h", "accel_prefix.h");
  if (TorchHeader.empty() || AccelHeader.empty())
    Dir.clear();
}

/// Its path; empty if it cannot be written. It is written once and stays: a
/// precompiled header notes the time of every file that it was made from.
std::string PrefixCache::headerThatIncludes(StringRef Name, StringRef File) {
  SmallString<256> Path(Dir);
  sys::path::append(Path, File);
  if (sys::fs::exists(Path))
    return std::string(Path);
  if (Error E = writeToOutput(Path, [&](raw_ostream &OS) {
        OS << "#include <" << Name << ">\n";
        return Error::success();
      })) {
    consumeError(std::move(E));
    return "";
  }
  return std::string(Path);
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
  Options.Diags = CompilerInstance::createDiagnostics(new DiagnosticOptions,
                                                      new IgnoringDiagConsumer);
  Options.VFS = FS;
  Options.CC1Args = &CC1Args;
  return createInvocation(Pointers, Options);
}

/// Does not depend on where the cache is.
static std::string keyOf(ArrayRef<std::string> CC1Args, StringRef Header,
                         StringRef Base, const UnitCommand &Command) {
  SHA256 Hash;
  auto Add = [&](StringRef Text) {
    Hash.update(Text);
    Hash.update(StringRef("\0", 1));
  };
  Add(getClangFullVersion());
  Add(Form);
  Add(sys::path::filename(Base));
  for (size_t I = 0; I != CC1Args.size(); ++I) {
    StringRef Word = CC1Args[I];
    // Where the command was started has no bearing on the headers.
    if (Word.starts_with("-fdebug-compilation-dir") ||
        Word.starts_with("-fcoverage-compilation-dir"))
      continue;
    Add(Word == Header ? sys::path::filename(Header) : Word);
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

namespace {

/// Leaves out the bodies of functions that are no templates: nothing in them
/// depends on the user's code. Templates keep theirs, so that what the user's
/// code does with them is checked. Bodies that decide about types or constants
/// are parsed by Clang in any case.
class PrefixConsumer : public ASTConsumer {
public:
  PrefixConsumer(CompilerInstance &Compiler, PrefixUses &Uses)
      : Compiler(Compiler), Uses(Uses) {}

  bool shouldSkipFunctionBody(Decl *D) override {
    const FunctionDecl *Function = D->getAsFunction();
    return Function && !Function->isTemplated();
  }

  void HandleTranslationUnit(ASTContext &) override {
    Uses.addIdentifiers(Compiler.getPreprocessor());
  }

private:
  CompilerInstance &Compiler;
  PrefixUses &Uses;
};

class PrefixAction : public GeneratePCHAction {
public:
  explicit PrefixAction(PrefixUses &Uses) : Uses(Uses) {}

  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &Compiler,
                                                 StringRef File) override {
    Uses.watch(Compiler);
    std::vector<std::unique_ptr<ASTConsumer>> Consumers;
    Consumers.push_back(GeneratePCHAction::CreateASTConsumer(Compiler, File));
    if (!Consumers.back())
      return nullptr;
    Consumers.back() = trimPrefix(std::move(Consumers.back()));
    Consumers.push_back(std::make_unique<PrefixConsumer>(Compiler, Uses));
    return std::make_unique<MultiplexConsumer>(std::move(Consumers));
  }

private:
  PrefixUses &Uses;
};

} // namespace

/// Where what PrefixUses knows of a precompiled header lies.
static std::string usesPath(StringRef Path) { return (Path + ".names").str(); }

static bool precompile(std::unique_ptr<CompilerInvocation> Invocation,
                       StringRef Directory, StringRef Path) {
  SmallString<256> Temporary;
  if (sys::fs::createUniqueFile(Path + ".%%%%%%.tmp", Temporary))
    return false;

  Invocation->getFrontendOpts().ProgramAction = frontend::GeneratePCH;
  Invocation->getFrontendOpts().OutputFile = std::string(Temporary);
  Invocation->getFrontendOpts().DisableFree = false;
  // The consumer decides which.
  Invocation->getFrontendOpts().SkipFunctionBodies = true;

  PrefixUses Uses;
  CompilerInstance Compiler;
  Compiler.setInvocation(std::move(Invocation));
  Compiler.createDiagnostics(new IgnoringDiagConsumer);
  IntrusiveRefCntPtr<vfs::FileSystem> FS = vfs::createPhysicalFileSystem();
  FS->setCurrentWorkingDirectory(Directory);
  Compiler.createFileManager(FS);
  PrefixAction Action(Uses);
  bool Good = Compiler.ExecuteAction(Action) &&
              !Compiler.getDiagnostics().hasErrorOccurred();
  if (Good)
    if (Error E = Uses.write(usesPath(Path))) {
      consumeError(std::move(E));
      Good = false;
    }
  Good = Good && !sys::fs::rename(Temporary, Path);
  if (!Good)
    sys::fs::remove(Temporary);
  return Good;
}

/// A macro that LibTorch's headers or the system's are likely to test.
static bool isLikelyTested(StringRef Macro) {
  return Macro == "NDEBUG" || any_of(std::initializer_list<StringRef>{
                                  "_", "USE_", "TORCH_", "C10_", "AT_", "ATEN_",
                                  "CAFFE2_", "PYTORCH_", "FMT_"},
                              [&](StringRef Start) {
                                return Macro.starts_with(Start);
                              });
}

/// A folder that every compiler looks into. accel's headers lie there when they
/// come from a package.
static bool isOfSystem(StringRef Dir) {
  return Dir == "/usr/include" || Dir == "/usr/local/include";
}

/// A command without the include folders and macros that are the project's own.
struct CommonCommand {
  UnitCommand Command;
  // What was left out.
  std::vector<std::string> Folders;
  std::vector<std::string> LastFolders; ///< -idirafter
  std::vector<std::string> Macros;
};

static CommonCommand commonPart(const UnitCommand &Full,
                                ArrayRef<std::string> Dirs) {
  CommonCommand Result;
  Result.Command = Full;
  std::vector<std::string> &Kept = Result.Command.Arguments;
  Kept.clear();
  for (size_t I = 0; I < Full.Arguments.size(); ++I) {
    StringRef Word = Full.Arguments[I];
    if (takesFolder(Word) && I + 1 != Full.Arguments.size()) {
      const std::string &Dir = Full.Arguments[++I];
      if (isOfSystem(realPath(Dir)) || is_contained(Dirs, realPath(Dir)))
        Kept.insert(Kept.end(), {Word.str(), Dir});
      else
        (Word == "-idirafter" ? Result.LastFolders : Result.Folders)
            .push_back(Dir);
      continue;
    }
    // Headers that have compiled without it have no use of it.
    if (Word == OpenMPMacro)
      continue;
    StringRef Macro = Word;
    if (Macro.consume_front("-D")) {
      bool IsApart = Macro.empty() && I + 1 != Full.Arguments.size();
      if (IsApart)
        Macro = Full.Arguments[I + 1];
      StringRef Name = Macro.take_until([](char C) { return C == '=' || C == '('; });
      if (!isLikelyTested(Name)) {
        Result.Macros.push_back(Name.str());
        I += IsApart;
        continue;
      }
    }
    Kept.push_back(Word.str());
  }
  return Result;
}

/// The precompiled header for exactly these flags.
std::string PrefixCache::make(const UnitCommand &Command, const Prefix &What) {
  std::vector<std::string> CC1Args;
  std::unique_ptr<CompilerInvocation> Invocation =
      prefixInvocation(Command, What.Header, CC1Args);
  if (!Invocation)
    return "";
  Invocation->getPreprocessorOpts().ImplicitPCHInclude = What.Base;
  std::string Key = keyOf(CC1Args, What.Header, What.Base, Command);
  auto [Entry, IsNew] = Made.try_emplace(Key);
  if (!IsNew)
    return Entry->second;

  SmallString<256> Path(Dir);
  sys::path::append(Path, FilePrefix + Key + ".pch");
  while (!sys::fs::exists(Path) || !sys::fs::exists(usesPath(Path))) {
    LockFileManager Lock(Path);
    if (Lock.getState() == LockFileManager::LFS_Shared &&
        Lock.waitForUnlock(LockSeconds) != LockFileManager::Res_Timeout)
      continue;
    if (link(Path))
      break;
    if (OnPrecompile && What.Base.empty())
      OnPrecompile();
    // The lock only saves work; without it two processes do the same. A crash
    // must not get past those who hold ours.
    bool Good = false;
    CrashRecoveryContext Guard;
    if (!Guard.RunSafely([&] {
          Good = precompile(std::move(Invocation), Command.Directory, Path);
        }) ||
        !Good)
      return "";
    if (What.Base.empty())
      Fresh.try_emplace(std::string(Path));
    CachePruningPolicy Policy;
    Policy.MaxSizeFiles = 54; // Three for each precompiled header.
    Policy.MaxSizePercentageOfAvailableSpace = 25;
    pruneCache(Dir, Policy);
    break;
  }
  Bases[std::string(Path)] = What.Base;
  return Entry->second = std::string(Path);
}

bool PrefixCache::link(StringRef Path) {
  SmallString<256> Target(Installed);
  sys::path::append(Target, sys::path::filename(Path));
  if (Installed.empty() || Discarded.count(Path.str()) ||
      !sys::fs::exists(Target) || !sys::fs::exists(usesPath(Target)))
    return false;
  // The header itself last: it is what others take for a sign that all is there.
  for (StringRef Suffix : {".names", ".proven", ""}) {
    sys::fs::remove(Path + Suffix);
    if (sys::fs::exists(Target + Suffix) &&
        sys::fs::create_link(Target + Suffix, Path + Suffix) &&
        !sys::fs::exists(Path + Suffix))
      return false;
  }
  return true;
}

const PrefixUses *PrefixCache::usesOf(const std::string &Path) {
  auto [Entry, IsNew] = Read.try_emplace(Path);
  if (IsNew)
    Entry->second = PrefixUses::read(usesPath(Path));
  return Entry->second ? &*Entry->second : nullptr;
}

bool PrefixCache::mentions(StringRef Path, StringRef Name, PrefixPart Part) {
  std::lock_guard<std::mutex> Guard(Mutex);
  for (std::string At = Path.str(); !At.empty(); At = Bases[At]) {
    const PrefixUses *Uses = usesOf(At);
    if (!Uses || Uses->mentions(Name))
      return true;
    if (Part == PrefixPart::OnlyAccel)
      break;
  }
  return false;
}

std::string PrefixCache::get(const UnitCommand &Command) {
  if (Dir.empty() || Command.TorchDirs.empty())
    return "";
  std::lock_guard<std::mutex> Guard(Mutex);
  return find(Command, {TorchHeader, /*Base=*/"", Command.TorchDirs});
}

std::string PrefixCache::getWithAccel(const UnitCommand &Command,
                                      const std::string &AccelDir) {
  std::string Torch = get(Command);
  std::lock_guard<std::mutex> Guard(Mutex);
  if (Torch.empty())
    return "";
  if (auto It = Fresh.find(Torch); It != Fresh.end() && It->second++ == 0)
    return "";
  Prefix Accel = {AccelHeader, Torch, Command.TorchDirs};
  Accel.Dirs.push_back(AccelDir);
  return find(Command, Accel);
}

/// The precompiled header with as few of the project's own flags as it may be
/// made with.
std::string PrefixCache::find(const UnitCommand &Command, const Prefix &What) {
  auto [Entry, IsNew] = Known.try_emplace(
      What.Header + '\0' + Command.Directory + '\0' +
      join(Command.Arguments, StringRef("\0", 1)));
  if (!IsNew)
    return Entry->second;
  CommonCommand Common = commonPart(Command, What.Dirs);
  std::string Path = make(Common.Command, What);
  if (!Path.empty() && !(Common.Folders.empty() && Common.LastFolders.empty() &&
                         Common.Macros.empty())) {
    const PrefixUses *Uses = usesOf(Path);
    auto MayHold = [&](bool IsLast) {
      return [&, IsLast](StringRef Dir) {
        return Uses->mayComeFrom(Dir, IsLast);
      };
    };
    bool Fits = Uses && none_of(Common.Folders, MayHold(/*IsLast=*/false)) &&
                none_of(Common.LastFolders, MayHold(/*IsLast=*/true)) &&
                none_of(Common.Macros,
                        [&](StringRef Name) { return Uses->mentions(Name); });
    if (!Fits)
      Path = make(Command, What);
  }
  return Entry->second = Path;
}

void PrefixCache::discard(StringRef Path) {
  std::lock_guard<std::mutex> Guard(Mutex);
  sys::fs::remove(Path);
  Discarded.insert(Path.str());
  Read.erase(Path.str());
  for (auto *Map : {&Made, &Known})
    for (auto Entry = Map->begin(); Entry != Map->end();)
      Entry = Entry->second == Path ? Map->erase(Entry) : std::next(Entry);
}

} // namespace accel::migrate
