//===- CompileCommands.cpp - How a file is compiled -----------------------===//

#include "CompileCommands.h"

#include "clang/Driver/Options.h"
#include "clang/Tooling/JSONCompilationDatabase.h"
#include "llvm/Option/ArgList.h"
#include "llvm/Option/OptTable.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace llvm;
using namespace clang::driver;
using clang::tooling::CompilationDatabase;
using clang::tooling::CompileCommand;

namespace accel::migrate {

static std::string absolute(StringRef Directory, StringRef Path) {
  SmallString<256> Full(Path);
  sys::fs::make_absolute(Directory, Full);
  sys::path::remove_dots(Full, /*remove_dot_dot=*/true);
  return std::string(Full);
}

/// Whether an option only decides about what is written or warned about.
static bool isOfNoMeaning(const opt::Arg &A, const opt::ArgList &Args) {
  const opt::Option &O = A.getOption();
  for (unsigned Group :
       {options::OPT_M_Group, options::OPT_O_Group, options::OPT_g_Group,
        options::OPT_Link_Group, options::OPT_Action_Group,
        options::OPT_m_x86_Features_Group, options::OPT_pedantic_Group,
        options::OPT_clang_ignored_f_Group})
    if (O.matches(Group))
      return true;
  // Some code is only valid C++ for Clang with a warning switched off.
  if (O.matches(options::OPT_W_Group))
    return !StringRef(A.getAsString(Args)).starts_with("-Wno-");
  for (unsigned Id :
       {options::OPT_o, options::OPT_pg, options::OPT_fPIC, options::OPT_fpic,
        options::OPT_fno_PIC, options::OPT_fno_pic, options::OPT_fPIE,
        options::OPT_fpie, options::OPT_fno_PIE, options::OPT_fno_pie,
        options::OPT_march_EQ, options::OPT_mtune_EQ, options::OPT_mcpu_EQ,
        options::OPT_fopenmp, options::OPT_fopenmp_EQ, options::OPT_flto,
        options::OPT_flto_EQ, options::OPT_fsanitize_EQ,
        options::OPT_include_pch, options::OPT_fpch_instantiate_templates,
        options::OPT_resource_dir_EQ, options::OPT_resource_dir})
    if (O.matches(Id))
      return true;
  if (O.matches(options::OPT_Wp_COMMA))
    return StringRef(A.getValue()).starts_with("-M");
  return false;
}

bool takesFolder(StringRef Word) {
  return Word == "-I" || Word == "-isystem" || Word == "-iquote" ||
         Word == "-idirafter";
}

/// Keeps what decides how a file is parsed; drops outputs, dependency files,
/// code generation, warnings, precompiled headers and what Clang does not know.
static UnitCommand adjustCommand(StringRef Directory,
                                 ArrayRef<std::string> CommandLine) {
  UnitCommand Command;
  Command.Directory = Directory.str();
  Command.Compiler = CommandLine.empty() ? "clang++" : CommandLine.front();

  SmallVector<const char *, 64> Pointers;
  for (const std::string &Word : CommandLine.drop_front(!CommandLine.empty()))
    Pointers.push_back(Word.c_str());
  unsigned MissingIndex = 0, MissingCount = 0;
  opt::InputArgList Args = getDriverOptTable().ParseArgs(
      Pointers, MissingIndex, MissingCount,
      opt::Visibility(options::ClangOption));

  bool SkipNextXclang = false;
  for (const opt::Arg *A : Args) {
    const opt::Option &O = A->getOption();
    if (O.matches(options::OPT_INPUT) || O.matches(options::OPT_UNKNOWN) ||
        O.matches(options::OPT_x) || O.matches(options::OPT__DASH_DASH) ||
        isOfNoMeaning(*A, Args))
      continue;
    if (O.matches(options::OPT_Xclang)) {
      bool IsPrefix = StringRef(A->getValue()).contains("-pch");
      if (IsPrefix || SkipNextXclang) {
        SkipNextXclang = StringRef(A->getValue()) == "-include-pch";
        continue;
      }
    }
    // Absolute, so that the same folders give the same precompiled header.
    if (const std::string Word = O.getPrefixedName().str(); takesFolder(Word)) {
      std::string Dir = absolute(Directory, A->getValue());
      Command.Arguments.insert(Command.Arguments.end(), {Word, Dir});
      if (sys::fs::exists(Dir + "/torch/torch.h") ||
          sys::fs::exists(Dir + "/ATen/ATen.h"))
        Command.TorchDirs.push_back(realPath(Dir));
      continue;
    }
    opt::ArgStringList Rendered;
    A->render(Args, Rendered);
    append_range(Command.Arguments, Rendered);
  }
  return Command;
}

std::vector<std::string> UnitCommand::forFile(StringRef File,
                                              StringRef Language) const {
  std::vector<std::string> Result = {Compiler};
  append_range(Result, Arguments);
  // GCC only warns of both: a size_t among the sizes in braces, and the enums
  // of Boost before 1.81.
  for (StringRef Last : {StringRef("-w"), StringRef("-Wno-c++11-narrowing"),
                         StringRef("-Wno-enum-constexpr-conversion"),
                         StringRef("-fsyntax-only"),
                         StringRef("-x"), Language, StringRef("--"), File})
    Result.push_back(Last.str());
  return Result;
}

/// Whether `#include <torch/torch.h>` works with this command; notes where a
/// folder that no flag names has it.
static bool reachesTorch(UnitCommand &Command) {
  auto HasTorch = [](StringRef Dir) {
    return sys::fs::exists(Dir + "/torch/torch.h");
  };
  if (any_of(Command.TorchDirs, HasTorch))
    return true;
  std::vector<std::string> Implied;
  for (StringRef Variable : {"CPATH", "CPLUS_INCLUDE_PATH"}) {
    SmallVector<StringRef> Parts;
    std::string Value = sys::Process::GetEnv(Variable).value_or("");
    StringRef(Value).split(Parts, ':', -1, /*KeepEmpty=*/false);
    Implied.insert(Implied.end(), Parts.begin(), Parts.end());
  }
  Implied.insert(Implied.end(), {"/usr/local/include", "/usr/include"});
  for (const std::string &Dir : Implied)
    if (HasTorch(Dir)) {
      Command.TorchDirs.push_back(realPath(Dir));
      return true;
    }
  return false;
}

Expected<std::unique_ptr<CompileCommands>>
CompileCommands::create(const FrontendOptions &Options,
                        const Surroundings &Found) {
  std::unique_ptr<CompileCommands> Commands(new CompileCommands(Options, Found));
  if (!Options.BuildDir.empty()) {
    std::string Message;
    Commands->Named =
        CompilationDatabase::loadFromDirectory(Options.BuildDir, Message);
    if (!Commands->Named)
      return createStringError(
          "'" + Options.BuildDir +
          "' has no usable compile_commands.json; CMake writes one with "
          "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON");
  }
  return Commands;
}

const CompileCommands::Database &
CompileCommands::databaseAbove(StringRef Dir) {
  auto [Entry, IsNew] = Above.try_emplace(Dir);
  if (!IsNew)
    return Entry->second;
  for (StringRef At = Dir; !At.empty(); At = sys::path::parent_path(At))
    for (StringRef Sub : {"", "/build"}) {
      std::string Candidate = (At + Sub).str();
      std::string Message;
      if (!sys::fs::exists(Candidate + "/compile_commands.json"))
        continue;
      if (auto Loaded =
              CompilationDatabase::loadFromDirectory(Candidate, Message)) {
        // Often the one among the sources is a link to that of the build.
        std::string Real = sys::path::parent_path(
                               realPath(Candidate + "/compile_commands.json"))
                               .str();
        Entry->second.Commands = std::move(Loaded);
        if (Real != realPath(At))
          Entry->second.BuildDir = Real;
        return Entry->second;
      }
    }
  return Entry->second;
}

Expected<UnitCommand> CompileCommands::find(StringRef File) {
  auto Complete = [&](UnitCommand Command) {
    if (Found.Torch && !reachesTorch(Command)) {
      for (std::string &Word : Found.Torch->includeArguments()) {
        if (Word != "-isystem")
          Command.TorchDirs.push_back(realPath(Word));
        Command.Arguments.push_back(std::move(Word));
      }
      if (none_of(Command.Arguments, [](StringRef Word) {
            return Word.starts_with("-std=") || Word.starts_with("--std");
          }))
        Command.Arguments.push_back(
            ("-std=" + Found.Torch->languageStandard()).str());
    }
    // Last, so that it can never hide a header of the user's.
    if (!Found.AccelIncludeDir.empty()) {
      Command.Arguments.push_back("-idirafter");
      Command.Arguments.push_back(Found.AccelIncludeDir);
    }
    Command.Arguments.push_back("-resource-dir=" + Found.ResourceDir);
    return Command;
  };

  SmallString<256> Cwd;
  sys::fs::current_path(Cwd);
  std::vector<std::string> Plain = {"clang++"};
  if (Options.Flags) {
    Plain.insert(Plain.end(), Options.Flags->begin(), Options.Flags->end());
    return Complete(adjustCommand(Cwd, Plain));
  }

  CompilationDatabase *Database = Named.get();
  std::string DatabaseDir;
  if (!Named) {
    const auto &Met = databaseAbove(sys::path::parent_path(File));
    Database = Met.Commands.get();
    DatabaseDir = Met.BuildDir;
  }
  std::vector<CompileCommand> Entries;
  if (Database) {
    Entries = Database->getCompileCommands(File);
    if (Entries.empty())
      Entries = Database->getCompileCommands(realPath(File));
  }
  // A database that was only met on the way up says nothing about files that
  // it does not list.
  if (!Named && !Entries.empty() && !Entries.front().Heuristic.empty())
    Entries.clear();
  if (Named && Entries.empty())
    return createStringError("'" + Options.BuildDir +
                             "' has no compile command that could serve for it");
  if (Entries.empty())
    return Complete(adjustCommand(Cwd, Plain));

  const CompileCommand &Entry = Entries.front();
  UnitCommand Command = adjustCommand(Entry.Directory, Entry.CommandLine);
  Command.DatabaseDir = DatabaseDir;
  if (!Entry.Heuristic.empty())
    Command.InferredFrom =
        StringRef(Entry.Heuristic).rsplit("inferred from ").second.str();
  return Complete(std::move(Command));
}

} // namespace accel::migrate
