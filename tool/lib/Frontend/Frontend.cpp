//===- Frontend.cpp - From a file name to a parsed unit -------------------===//

#include "accel/migrate/Frontend.h"

#include "CompileCommands.h"
#include "FirstError.h"
#include "IncludeScan.h"
#include "Instantiations.h"
#include "PrefixCache.h"
#include "PrefixWatch.h"
#include "Remedies.h"
#include "SourcesTogether.h"
#include "UnseenCode.h"
#include "UserScope.h"

#include "accel/migrate/Findings.h"
#include "accel/migrate/ProjectSources.h"

#include "clang/AST/ASTConsumer.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/FrontendActions.h"
#include "clang/Frontend/Utils.h"
#include "clang/Lex/PPCallbacks.h"
#include "clang/Lex/PreprocessorOptions.h"
#include "clang/Sema/Sema.h"
#include "clang/Sema/SemaConsumer.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <chrono>
#include <mutex>
#include <set>

using namespace llvm;
using namespace clang;

namespace accel::migrate {

namespace {

/// Clang recurses deeply in long expressions and template arguments.
constexpr unsigned StackBytes = 64u << 20;

double secondsSince(std::chrono::steady_clock::time_point Start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - Start)
      .count();
}

/// What was asked for.
struct Request {
  StringRef Main;
  StringRef File;
  /// Those of a program, `File` among them; empty: the file by itself.
  ArrayRef<std::string> Sources;
  const TextOverlay &Overlay;
  Thoroughness Depth;
  UnitCallback OnUnit;
};

/// How a unit is parsed.
struct Way {
  /// LibTorch's headers come precompiled from this file; empty: as text.
  StringRef Prefix;
  /// It has accel's, too.
  bool HasAccel = false;
  /// Bodies of functions that are not the user's are not parsed.
  bool SkipBodies = false;
  Thoroughness Depth = Thoroughness::Complete;
  /// What need not be instantiated with this prefix.
  ProvenTemplates *Proven = nullptr;
  /// What the program itself asks for: noted by an analysis, not instantiated
  /// in a result.
  DenseSet<uint64_t> *OfOriginal = nullptr;
  /// Whether the headers of the prefix have a name in them.
  PrefixMentions Mentions = {};
};

/// What one attempt found out.
struct Attempt {
  FirstError Error;
  /// The unit includes what was precompiled, and nothing before it can change
  /// what it means: the precompiled form was the right one.
  bool PrefixFits = false;
  double CallbackSeconds = 0;
  bool CallbackRan = false;
  TextOverlay UserFiles;
  UnseenCode Unseen;
  /// A macro of one source of a program that another one meets.
  std::string LeakedMacro;
};

/// The file that stands for a program: it includes the sources.
std::string programFile(StringRef Main) {
  return (sys::path::parent_path(Main) + "/.accel-migrate-program.cpp").str();
}

/// Collects the user's declarations and hands the finished unit on.
class ScopedConsumer : public SemaConsumer {
public:
  ScopedConsumer(CompilerInstance &Compiler, UserLocations &User,
                 Attempt &Result, const Way &How, UnitCallback OnUnit)
      : Compiler(Compiler), User(User), Result(Result),
        NeedsFit(!How.Prefix.empty()), OnUnit(OnUnit),
        Queue(User, Compiler.getSourceManager(), How.Depth, How.Proven,
              How.OfOriginal) {}

  void InitializeSema(Sema &S) override { TheSema = &S; }
  void ForgetSema() override { TheSema = nullptr; }

  bool HandleTopLevelDecl(DeclGroupRef Group) override {
    if (TheSema)
      Queue.drop(*TheSema, Group);
    for (Decl *D : Group)
      if (User.contains(D->getLocation(), Compiler.getSourceManager()))
        Scope.push_back(D);
    return true;
  }

  bool shouldSkipFunctionBody(Decl *D) override {
    return !User.contains(D->getLocation(), Compiler.getSourceManager());
  }

  void HandleTranslationUnit(ASTContext &Context) override {
    SourceManager &SM = Compiler.getSourceManager();
    for (unsigned I = 1, N = SM.local_sloc_entry_size(); I < N; ++I) {
      const SrcMgr::SLocEntry &Entry = SM.getLocalSLocEntry(I);
      if (!Entry.isFile() || !Entry.getFile().getContentCache().OrigEntry)
        continue;
      FileID File = SM.getFileID(SourceLocation::getFromRawEncoding(
          Entry.getOffset()));
      if (User.contains(File, SM))
        Result.UserFiles.try_emplace(realPathOf(File, SM).str(),
                                     SM.getBufferData(File).str());
    }
    if (Compiler.getDiagnostics().hasErrorOccurred() ||
        (NeedsFit && !Result.PrefixFits) || !Result.LeakedMacro.empty())
      return;
    Queue.remember();
    auto Start = std::chrono::steady_clock::now();
    Context.setTraversalScope(Scope);
    OnUnit(Context);
    Result.CallbackRan = true;
    Result.CallbackSeconds = secondsSince(Start);
  }

private:
  CompilerInstance &Compiler;
  UserLocations &User;
  Attempt &Result;
  bool NeedsFit;
  UnitCallback OnUnit;
  Sema *TheSema = nullptr;
  Instantiations Queue;
  std::vector<Decl *> Scope;
};

class ScopedAction : public ASTFrontendAction {
public:
  ScopedAction(UserLocations &User, Attempt &Result, const Way &How,
               ArrayRef<std::string> Sources, UnitCallback OnUnit)
      : User(User), Result(Result), How(How), Sources(Sources), OnUnit(OnUnit) {
  }

  std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &Compiler,
                                                 StringRef) override {
    Preprocessor &PP = Compiler.getPreprocessor();
    PP.addPPCallbacks(watchPrefix(Compiler.getSourceManager(),
                                  Compiler.getLangOpts(), User, How.HasAccel,
                                  How.Mentions, Result.PrefixFits));
    PP.addPPCallbacks(Result.Unseen.watch(Compiler.getSourceManager(), User));
    if (Sources.size() > 1)
      PP.addPPCallbacks(
          watchSourcesTogether(Sources, PP, User, Result.LeakedMacro));
    return std::make_unique<ScopedConsumer>(Compiler, User, Result, How,
                                            OnUnit);
  }

private:
  UserLocations &User;
  Attempt &Result;
  const Way &How;
  ArrayRef<std::string> Sources;
  UnitCallback OnUnit;
};

} // namespace

class Frontend::Impl {
public:
  explicit Impl(FrontendOptions Options) : Options(std::move(Options)) {}

  Error prepare();
  ParsedUnit parse(const Request &Asked);
  bool mayEdit(StringRef RealPath, std::optional<StringRef> Main) const {
    std::lock_guard<std::mutex> Guard(Mutex);
    return any_of(Scopes, [&](const auto &Scope) {
      return (!Main || Scope.first == *Main) && Scope.second.mayEdit(RealPath);
    });
  }

private:
  void parseUnprotected(const Request &Asked, ParsedUnit &Result);
  FirstError parseWith(const UnitCommand &Command, StringRef Text,
                       const Request &Asked, ParsedUnit &Result);
  Attempt attempt(const Way &How, StringRef Text, const Request &Asked,
                  const UnitCommand &Command, const UserScope &Scope);
  Expected<UnitCommand> commandOf(StringRef File);
  /// The errors of a main file that a flag more has done away with.
  std::vector<FirstError> repairedBefore(const std::string &File) {
    std::lock_guard<std::mutex> Guard(Mutex);
    return Repaired[File];
  }
  void rememberRepaired(const std::string &File, FirstError Error) {
    std::lock_guard<std::mutex> Guard(Mutex);
    Repaired[File].push_back(std::move(Error));
  }
  /// Adds to `Command` the folders that the other sources of a program look
  /// into. False when they are compiled differently otherwise.
  bool addCommands(ArrayRef<std::string> Sources, UnitCommand &Command);
  const UserScope &scopeOf(StringRef File, const UnitCommand &Command);
  /// Where the project that `File` belongs to has the header that was not
  /// found; empty if it has none, or several that fit alike.
  std::string folderInProject(const FirstError &Error, StringRef File);

  FrontendOptions Options;
  Surroundings Found;
  std::optional<PrefixCache> Prefixes;

  /// Held for a look at what follows, never while something is parsed.
  mutable std::mutex Mutex;
  std::unique_ptr<CompileCommands> Commands;
  std::map<std::string, UserScope> Scopes; ///< By main file.
  std::map<std::string, std::unique_ptr<ProjectSources>> Projects; ///< By folder.
  std::map<std::string, std::vector<FirstError>> Repaired;
  /// What analyses noted, by main file.
  std::map<std::string, DenseSet<uint64_t>> OfOriginals;
};

Error Frontend::Impl::prepare() {
  Expected<Surroundings> F = Surroundings::find(Options);
  if (!F)
    return F.takeError();
  Found = std::move(*F);
  auto C = CompileCommands::create(Options, Found);
  if (!C)
    return C.takeError();
  Commands = std::move(*C);
  if (Options.UseCache)
    Prefixes.emplace(Options.CacheDir, Found.PrecompiledDir,
                     Options.OnPrecompile);
  CrashRecoveryContext::Enable();
  return Error::success();
}

const UserScope &Frontend::Impl::scopeOf(StringRef File,
                                         const UnitCommand &Command) {
  std::string Real = realPath(File);
  std::vector<std::string> Foreign = Command.TorchDirs;
  Foreign.push_back(Found.ResourceDir);
  if (!Found.AccelIncludeDir.empty())
    Foreign.push_back(Found.AccelIncludeDir);
  std::string BuildDir =
      Options.BuildDir.empty() ? "" : realPath(Options.BuildDir);
  if (BuildDir.empty())
    BuildDir = Command.DatabaseDir;
  std::lock_guard<std::mutex> Guard(Mutex);
  return Scopes
      .try_emplace(Real, Real, std::move(Foreign), BuildDir,
                   Options.InRoot.empty() ? "" : realPath(Options.InRoot))
      .first->second;
}

static StringRef languageOf(StringRef File) {
  StringRef Extension = sys::path::extension(File);
  return Extension.starts_with(".h") || Extension == ".ipp" ||
                 Extension == ".inl"
             ? "c++-header"
             : "c++";
}

Expected<UnitCommand> Frontend::Impl::commandOf(StringRef File) {
  std::lock_guard<std::mutex> Guard(Mutex);
  return Commands->find(File);
}

Attempt Frontend::Impl::attempt(const Way &How, StringRef Text,
                                const Request &Asked,
                                const UnitCommand &Command,
                                const UserScope &Scope) {
  Attempt Result;
  UserLocations User(Scope);
  FirstErrorConsumer Diagnostics(Result.Error, User);

  IntrusiveRefCntPtr<vfs::FileSystem> FS = vfs::createPhysicalFileSystem();
  FS->setCurrentWorkingDirectory(Command.Directory);
  std::vector<std::string> Words = Command.forFile(Text, languageOf(Text));
  std::vector<const char *> Pointers;
  for (const std::string &Word : Words)
    Pointers.push_back(Word.c_str());
  CreateInvocationOptions InvocationOptions;
  InvocationOptions.Diags = CompilerInstance::createDiagnostics(
      new DiagnosticOptions, &Diagnostics, /*ShouldOwnClient=*/false);
  InvocationOptions.VFS = FS;
  std::shared_ptr<CompilerInvocation> Invocation =
      createInvocation(Pointers, InvocationOptions);
  if (!Invocation) {
    Result.Error.IsCommandLine = true;
    return Result;
  }
  Invocation->getFrontendOpts().DisableFree = false;
  Invocation->getFrontendOpts().SkipFunctionBodies = How.SkipBodies;
  Invocation->getDiagnosticOpts().ErrorLimit = 20;
  PreprocessorOptions &PPOptions = Invocation->getPreprocessorOpts();
  if (!How.Prefix.empty()) {
    PPOptions.ImplicitPCHInclude = How.Prefix.str();
    HeaderSearchOptions &Search = Invocation->getHeaderSearchOpts();
    // A changed compiler or LibTorch must not go unnoticed.
    Search.ModulesValidateSystemHeaders = true;
    Search.ModulesValidateDiagnosticOptions = false;
  }
  for (const auto &[Path, Content] : Asked.Overlay)
    PPOptions.addRemappedFile(
        Path, MemoryBuffer::getMemBufferCopy(Content, Path).release());

  CompilerInstance Compiler;
  Compiler.setInvocation(std::move(Invocation));
  Compiler.setVerboseOutputStream(llvm::nulls());
  Compiler.createDiagnostics(&Diagnostics, /*ShouldOwnClient=*/false);
  Compiler.createFileManager(FS);
  ScopedAction Action(User, Result, How, Asked.Sources, Asked.OnUnit);
  Compiler.ExecuteAction(Action);
  return Result;
}

std::string Frontend::Impl::folderInProject(const FirstError &Error,
                                            StringRef File) {
  const auto [Folder, IsMarked] = projectOf(realPath(File));
  std::lock_guard<std::mutex> Guard(Mutex);
  auto [It, New] = Projects.try_emplace(Folder, nullptr);
  if (New)
    It->second = std::make_unique<ProjectSources>(Folder, IsMarked);
  return It->second->folderOf(Error.MissingHeader, Error.Place.File.empty()
                                                       ? realPath(File)
                                                       : Error.Place.File);
}

bool Frontend::Impl::addCommands(ArrayRef<std::string> Sources,
                                 UnitCommand &Command) {
  auto Split = [&](const UnitCommand &C, auto OnFolder) {
    std::set<std::string> Others;
    for (size_t I = 0; I < C.Arguments.size(); ++I)
      if (takesFolder(C.Arguments[I]) && I + 1 < C.Arguments.size()) {
        OnFolder(C.Arguments[I], C.Arguments[I + 1]);
        ++I;
      } else {
        Others.insert(C.Arguments[I]);
      }
    return Others;
  };
  std::set<std::string> Folders;
  const std::set<std::string> Others =
      Split(Command, [&](const std::string &, const std::string &Dir) {
        Folders.insert(Dir);
      });
  for (const std::string &Source : Sources) {
    Expected<UnitCommand> C = commandOf(Source);
    if (!C) {
      consumeError(C.takeError());
      return false;
    }
    std::vector<std::string> More;
    if (Split(*C, [&](const std::string &Option, const std::string &Dir) {
          if (Folders.insert(Dir).second)
            More.insert(More.end(), {Option, Dir});
        }) != Others)
      return false;
    append_range(Command.Arguments, More);
  }
  return true;
}

void Frontend::Impl::parseUnprotected(const Request &Asked,
                                      ParsedUnit &Result) {
  const StringRef File = Asked.File;
  const ArrayRef<std::string> Sources = Asked.Sources;
  SmallString<256> Absolute(File);
  sys::fs::make_absolute(Absolute);
  sys::path::remove_dots(Absolute);

  Expected<UnitCommand> Command = commandOf(Absolute);
  if (!Command) {
    Result.Problem =
        makeFinding("ACL0003", {realPath(File), 0, 0},
                    toString(Command.takeError()),
                    "Give the file's flags behind -- instead of -p.");
    return;
  }
  if (!Command->InferredFrom.empty())
    Result.Notes.push_back(
        makeFinding("ACL0005", {realPath(File), 0, 0},
                    "not in compile_commands.json; the flags of " +
                        Command->InferredFrom + " are used"));
  const std::string Name(Absolute);
  TextOverlay Together;
  if (Sources.size() > 1) {
    if (!addCommands(Sources, *Command)) {
      Result.Problem = makeFinding("ACL0161", {realPath(File), 0, 0},
                                   "its sources are compiled with different "
                                   "flags and cannot be read together");
      return;
    }
    Together = Asked.Overlay;
    Absolute = programFile(Absolute);
    std::string &Text = Together[std::string(Absolute)];
    for (const std::string &Source : Sources)
      Text += "#include \"" + Source + "\"\n";
  }
  const Request Whole{Asked.Main, File, Sources,
                      Sources.size() > 1 ? Together : Asked.Overlay,
                      Asked.Depth, Asked.OnUnit};

  std::vector<std::string> Added;
  auto Mend = [&](const FirstError &Error) {
    std::optional<Repair> Next = repairFor(Error, *Command);
    if (!Next && !Error.MissingHeader.empty())
      if (std::string Dir = folderInProject(Error, File); !Dir.empty())
        Next = repairWithFolder(Error, *Command, Dir);
    if (Next) {
      *Command = std::move(Next->Command);
      Added.push_back(std::move(Next->What));
    }
    return Next.has_value();
  };
  for (const FirstError &Error : repairedBefore(Name))
    (void)Mend(Error);
  // Each flag is for another error; the bound is there for a strange file.
  constexpr size_t MostFlags = 12;
  while (true) {
    FirstError Error = parseWith(*Command, Absolute, Whole, Result);
    if (Result.State == ParsedUnit::Status::Parsed ||
        Added.size() >= MostFlags || !Mend(Error))
      break;
    rememberRepaired(Name, std::move(Error));
  }
  for (const std::string &What : Added)
    Result.Notes.push_back(makeFinding("ACL0030", {realPath(File), 0, 0},
                                       "it is read with " + What));
}

/// Parses `Text`, the file itself or what includes all its sources, with one
/// command, in the ways that promise to be quick first. Returns the error that
/// decided, if it was not parsed.
FirstError Frontend::Impl::parseWith(const UnitCommand &Command, StringRef Text,
                                     const Request &Asked,
                                     ParsedUnit &Result) {
  const StringRef File = Asked.File;
  const UserScope &Scope = scopeOf(File, Command);
  DenseSet<uint64_t> OfOriginal;
  if (Asked.Depth == Thoroughness::Result) {
    std::lock_guard<std::mutex> Guard(Mutex);
    OfOriginal = OfOriginals[realPath(Asked.Main)];
  }
  auto Run = [&](Way How) {
    How.OfOriginal = &OfOriginal;
    How.Mentions = [this, Path = How.Prefix](StringRef Name, PrefixPart Part) {
      return Prefixes->mentions(Path, Name, Part);
    };
    auto Start = std::chrono::steady_clock::now();
    Attempt A = attempt(How, Text, Asked, Command, Scope);
    Result.Times.Parse += secondsSince(Start) - A.CallbackSeconds;
    Result.Times.Callback += A.CallbackSeconds;
    Result.UserFiles = std::move(A.UserFiles);
    Result.Unseen = A.Unseen.ranges();
    if (Asked.Sources.size() > 1)
      Result.UserFiles.erase(Text.str());
    if (A.CallbackRan && Asked.Depth == Thoroughness::Analysis) {
      std::lock_guard<std::mutex> Guard(Mutex);
      OfOriginals[realPath(Asked.Main)].insert(OfOriginal.begin(),
                                               OfOriginal.end());
    }
    if (A.CallbackRan)
      Result.State = ParsedUnit::Status::Parsed;
    else if (!A.LeakedMacro.empty())
      Result.Problem =
          makeFinding("ACL0161", {realPath(File), 0, 0},
                      "the macro '" + A.LeakedMacro +
                          "' of one of its sources would be seen by another "
                          "one, if they were read together");
    else
      Result.Problem = problemOf(A.Error, File, Found);
    return A;
  };

  MentionedHeaders Mentioned;
  if (Prefixes)
    Mentioned = mentionedHeaders(Text, Command, Asked.Overlay);
  if (Mentioned.Torch) {
    bool HasAccel = !Found.AccelIncludeDir.empty() && Mentioned.Accel;
    // More than one try for each is for a file in the cache that is no longer
    // good.
    for (int Try = 0; Try != 4; ++Try) {
      auto Start = std::chrono::steady_clock::now();
      std::string Prefix;
      if (HasAccel)
        Prefix = Prefixes->getWithAccel(Command, Found.AccelIncludeDir);
      if (Prefix.empty()) {
        HasAccel = false;
        Prefix = Prefixes->get(Command);
      }
      Result.Times.Precompile += secondsSince(Start);
      if (Prefix.empty())
        break;
      ProvenTemplates Proven(Prefix);
      Attempt A =
          Run({Prefix, HasAccel, /*SkipBodies=*/false, Asked.Depth, &Proven});
      if (A.Error.IsPrefixProblem) {
        Prefixes->discard(Prefix);
        continue;
      }
      Result.UsedPrefix = A.PrefixFits || A.Error.IsAlwaysMissing;
      Result.UsedAccelPrefix = Result.UsedPrefix && HasAccel;
      if (Result.UsedPrefix)
        return A.Error;
      if (!HasAccel)
        break;
      HasAccel = false;
    }
  }
  // Without its body a function can be of less use to the rest than it should
  // be; an error that may come from that is not believed.
  Attempt A = Run({"", /*HasAccel=*/false, /*SkipBodies=*/true, Asked.Depth});
  if (!A.CallbackRan && !A.Error.IsPlain && !A.Error.IsCommandLine)
    A = Run({"", /*HasAccel=*/false, /*SkipBodies=*/false, Asked.Depth});
  return A.Error;
}

ParsedUnit Frontend::Impl::parse(const Request &Asked) {
  ParsedUnit Result;
  CrashRecoveryContext Guard;
  if (!Guard.RunSafelyOnThread(
          [&] { parseUnprotected(Asked, Result); },
          StackBytes)) {
    Result.State = ParsedUnit::Status::Crashed;
    Result.Problem = makeFinding(
        "ACL0004", {realPath(Asked.File), 0, 0},
        "the analysis crashed; the file is left alone",
        "Please report it, with the file if you can.");
  }
  return Result;
}

Frontend::Frontend(std::unique_ptr<Impl> I) : TheImpl(std::move(I)) {}
Frontend::~Frontend() = default;

Expected<std::unique_ptr<Frontend>> Frontend::create(FrontendOptions Options) {
  auto NewImpl = std::make_unique<Impl>(std::move(Options));
  if (Error E = NewImpl->prepare())
    return E;
  return std::unique_ptr<Frontend>(new Frontend(std::move(NewImpl)));
}

ParsedUnit Frontend::parse(StringRef Main, ArrayRef<std::string> Sources,
                           const TextOverlay &Overlay, Thoroughness How,
                           UnitCallback OnUnit) {
  if (Sources.size() == 1)
    return TheImpl->parse({Main, Sources.front(), {}, Overlay, How, OnUnit});
  return TheImpl->parse({Main, Main, Sources, Overlay, How, OnUnit});
}

bool Frontend::mayEdit(StringRef RealPath, StringRef Main) const {
  return TheImpl->mayEdit(RealPath, realPath(Main));
}

bool Frontend::mayEdit(StringRef RealPath) const {
  return TheImpl->mayEdit(RealPath, std::nullopt);
}

} // namespace accel::migrate
